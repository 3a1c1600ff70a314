"""
Run the demo: python -m example

This process owns the database; the story is told by a process of its own, `manage.py demo`. So a signal ends the
story at any point, and never gets lost in it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from example import database, services

DESCRIPTION = (
    "Tell the story of a small shop, chapter by chapter, on a database that is started for it and ends with it."
    " DATABASE_URL names another one, which has to be empty."
)
EPILOG = "Exit status: 0 when all chapters came out as told, 1 when one did not, 2 when the demo could not start."
MANAGE = Path(__file__).with_name("manage.py")
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_SECONDS = 0.2


class Stopped(BaseException):
    """
    Unwind everything, because a signal asked for the end.
    """


class Ending:
    """
    Handle the signals that end the demo: the first one interrupts it, more of them must not disturb the clearing up.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.is_clearing_up = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if self.number is None and not self.is_clearing_up:
            self.number = number
            raise Stopped

    def check(self) -> None:
        """
        Interrupt now, where Python swallowed the first try: it does so in destructors and weak references.
        """
        if self.number is not None:
            raise Stopped


def main(given: Sequence[str] | None = None) -> int:
    """
    Start a database, have the story told, stop the database; return the exit status.
    """
    options = arguments(given)
    ending = Ending()
    for number in ENDING_SIGNALS:
        signal.signal(number, ending)
    try:
        if not (os.environ.get("DATABASE_URL") or options.sqlite):
            print("Starting a PostgreSQL for the demo ...", flush=True)
        with database.chosen(sqlite=options.sqlite) as choice:
            print(f"Database: {choice.words}.", flush=True)
            return tell(options, choice.url, ending)
    except Stopped:
        print("\nStopped. Nothing that was started is left.", file=sys.stderr)
        return 128 + (ending.number or 0)
    except services.ServiceFailed as error:
        print(f"The demo could not start: {error}", file=sys.stderr)
        return 2


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """
    Read the command line.
    """
    parser = argparse.ArgumentParser(prog="python -m example", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--check", action="store_true", help="never wait for Enter; for scripts and CI")
    parser.add_argument("--sqlite", action="store_true", help="use a temporary SQLite file, whatever else there is")
    parser.add_argument("--log", action="store_true", help="also print the library's own log lines")
    parser.add_argument("--no-color", action="store_true", help="plain text on a terminal too (as NO_COLOR does)")
    return parser.parse_args(given)


def tell(options: argparse.Namespace, url: str, ending: Ending) -> int:
    """
    Have the story told on a database; return the exit status.
    """
    words = [f"--{name.replace('_', '-')}" for name in ("check", "log", "no_color") if getattr(options, name)]
    environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "example.settings"}
    ending.check()
    story = subprocess.Popen(
        [sys.executable, str(MANAGE), "demo", *words], env=environment, preexec_fn=leave_interrupts_to_us
    )
    try:
        while story.poll() is None:
            ending.check()
            try:
                story.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        return story.returncode if story.returncode >= 0 else 128 - story.returncode
    finally:
        ending.is_clearing_up = True
        story.terminate()
        story.wait()


def leave_interrupts_to_us() -> None:
    """
    Ignore Ctrl-C in the story: a terminal sends it to both processes, and one of them has to answer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
