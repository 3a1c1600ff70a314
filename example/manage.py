"""
Run Django's commands on the example: python example/manage.py shell
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line


def main() -> None:
    """
    Run the command that was asked for.
    """
    # Python puts this file's folder on the path, where the apps would have a second name; the repository replaces it.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
