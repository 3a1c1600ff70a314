"""
Run a management command as a process of a test: `python -m tests.worker.manage dl_worker --queues work`.

It is what a project's manage.py does, and two things more: the process ends with the test run that started it, and
SIGUSR2 writes the stack of every thread into the log.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys

from django.core.management import execute_from_command_line

from tests.worker.clock import mend_sleep
from tests.worker.processes import end_with_starter


def main() -> None:
    """
    Tie this process to its starter and run the command.
    """
    starter = int(os.environ.pop("DL_WORKER_STARTER"))
    end_with_starter()
    if os.getppid() != starter:
        sys.exit("The test run that started this process is gone.")
    mend_sleep()
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.worker.settings"
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
