"""
The courier and the label printer: other people's machines, played here by files in a folder of their own.

What matters for the shop: they are slow, fail now and then, serve any process that asks, and no rollback of our
database takes back what they did. Both know a job by the key they are given, so asking again does nothing twice.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from django.conf import settings

__all__ = ["NoAnswer", "NoSuchAddress", "OutsideMachine", "courier", "printer"]

POLL_SECONDS = 0.02
PATIENCE_SECONDS = 30.0


class NoAnswer(Exception):
    """
    Say that the other side did not answer; it may have done the job all the same.
    """


class NoSuchAddress(Exception):
    """
    Say that the courier does not go there, today or tomorrow.
    """


class OutsideMachine:
    """
    Do a job once for each key, and be troublesome as often as the story wants it.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def folder(self) -> Path:
        """
        Return the folder of its books.
        """
        folder = Path(settings.OUTSIDE_WORLD, self.name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def do(self, key: object) -> str:
        """
        Do the job of this key, or find it done; return its number.

        Raises: NoAnswer when there is trouble.
        """
        with (self.folder / f"asked-{key}").open("a") as book:
            book.write(f"{os.getpid()}\n")
        self.wait_while_stuck()
        for trouble in self.folder.glob("trouble-*"):
            trouble.unlink(missing_ok=True)
            raise NoAnswer(f"the {self.name} does not answer")
        job = self.folder / f"job-{key}"
        if not job.exists():
            job.write_text(f"{self.name[0].upper()}{len(list(self.folder.glob('job-*'))) + 1:04}")
        return job.read_text()

    def has_done(self, key: object) -> bool:
        """
        Tell whether the job of a key was done.
        """
        return (self.folder / f"job-{key}").exists()

    def asked_by(self, key: object) -> list[int]:
        """
        List the processes that asked for a key, once for each time.
        """
        asked = self.folder / f"asked-{key}"
        return [int(pid) for pid in asked.read_text().split()] if asked.exists() else []

    def make_trouble(self, times: int) -> None:
        """
        Give no answer so many times.
        """
        for number in range(times):
            (self.folder / f"trouble-{number}").touch()

    def get_stuck(self) -> None:
        """
        Keep whoever asks waiting until `get_going`.
        """
        (self.folder / "stuck").touch()

    def get_going(self) -> None:
        """
        Answer again.
        """
        (self.folder / "stuck").unlink(missing_ok=True)

    def wait_while_stuck(self) -> None:
        """
        Take as long as the story wants, within bounds.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (self.folder / "stuck").exists() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)


courier = OutsideMachine("courier")
printer = OutsideMachine("printer")
