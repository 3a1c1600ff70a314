"""
Hold processes at a named place until the test lets them go on.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

#: Seconds after which a process that does not arrive fails the test.
PATIENCE = 30.0


class Arrival(NamedTuple):
    """
    Say which process waits at a gate, and at which place in the code.
    """

    pid: int
    place: str


class Gate:
    """
    Stop processes that call `testpoints.pause(path)`, one FIFO for their arrival and one for the way on.

    Both FIFOs are held open for reading and writing, so nobody waits in open() and a closed gate lets all pass.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._arrivals, self._way_on = (_fifo(path), _fifo(path.with_name(f"{path.name}.go")))
        self._unread = ""

    @property
    def deed(self) -> str:
        """
        Return what makes a test point stop here.
        """
        return f"pause:{self.path}"

    def arrival(self, seconds: float = PATIENCE) -> Arrival:
        """
        Wait for the next process that arrives.

        Raises: AssertionError when none comes in time.
        """
        while "\n" not in self._unread:
            if not select.select([self._arrivals], [], [], seconds)[0]:
                raise AssertionError(f"No process came to {self.path.name} within {seconds:g} seconds.")
            self._unread += os.read(self._arrivals, 1024).decode()
        line, _, self._unread = self._unread.partition("\n")
        pid, _, place = line.partition(" ")
        return Arrival(int(pid), place)

    def has_arrival(self) -> bool:
        """
        Tell whether a process has arrived that `arrival` has not yet returned.
        """
        return "\n" in self._unread or bool(select.select([self._arrivals], [], [], 0)[0])

    def let_go(self, count: int = 1) -> None:
        """
        Let so many processes go on, those that wait now or those that come next.
        """
        os.write(self._way_on, b"." * count)

    def close(self) -> None:
        """
        Let everybody go on, now and later.
        """
        for end in (self._arrivals, self._way_on):
            os.close(end)


@contextmanager
def gate(folder: Path, name: str = "gate") -> Iterator[Gate]:
    """
    Make a gate in a folder; it stops nobody any more after the block.
    """
    made = Gate(folder / name)
    try:
        yield made
    finally:
        made.close()


def _fifo(path: Path) -> int:
    os.mkfifo(path)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)
