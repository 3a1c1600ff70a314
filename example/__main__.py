"""
Run the demo: python -m example

This process owns the database; the story is told by a process of its own, `manage.py demo`. So a signal ends the
story at any point, and never gets lost in it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
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
LEAVING_SECONDS = 5.0


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
        # Unlike the database, this folder is on the other side of every transaction: see shop/dispatch.py.
        with (
            database.chosen(sqlite=options.sqlite) as choice,
            tempfile.TemporaryDirectory(prefix="dl-outside-", ignore_cleanup_errors=True) as outside,
        ):
            print(f"Database: {choice.words}.", flush=True)
            return tell(options, choice.url, outside, ending)
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


def tell(options: argparse.Namespace, url: str, outside: str, ending: Ending) -> int:
    """
    Have the story told on a database; return the exit status.
    """
    words = [f"--{name.replace('_', '-')}" for name in ("check", "log", "no_color") if getattr(options, name)]
    environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "example.settings"}
    environment["SHOP_OUTSIDE_WORLD"] = outside
    ending.check()
    story = subprocess.Popen([sys.executable, str(MANAGE), "demo", *words], env=environment, start_new_session=True)
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
        end_crew(story.pid)


def end_crew(session: int) -> None:
    """
    End the workers of a story that was interrupted, and wait until they are gone.

    The story leads a session of its own: Ctrl-C on a terminal reaches this process alone, which then ends all of it.
    """
    deadline = time.monotonic() + LEAVING_SECONDS
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(session, signal.SIGKILL)
            time.sleep(POLL_SECONDS / 10)


if __name__ == "__main__":
    sys.exit(main())
