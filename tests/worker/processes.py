"""
Look at processes through /proc, and end those that a test started.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
ZOMBIE = "Z"
SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """
    Hold what /proc says of one process.
    """

    pid: int
    state: str
    parent: int
    group: int
    session: int


def look_up(pid: int) -> Process | None:
    """
    Read one process; None when it is gone. A zombie, ended but not yet waited for, is still there.
    """
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything, spaces and parentheses included.
    state, parent, group, session = text.rpartition(")")[2].split()[:4]
    return Process(pid=pid, state=state, parent=int(parent), group=int(group), session=int(session))


def running() -> Iterator[Process]:
    """
    Go through all processes that have not ended.
    """
    for entry in PROC.iterdir():
        found = look_up(int(entry.name)) if entry.name.isdigit() else None
        if found is not None and found.state != ZOMBIE:
            yield found


def is_running(pid: int) -> bool:
    """
    Tell whether a process is there and has not ended.
    """
    found = look_up(pid)
    return found is not None and found.state != ZOMBIE


def children_of(pid: int) -> list[int]:
    """
    List the pids of a process's children that have not ended, the oldest first.
    """
    return sorted(process.pid for process in running() if process.parent == pid)


def members_of(session: int) -> list[int]:
    """
    List the pids of a session: the process that leads it and all that came from it, whoever their parent is now.
    """
    return sorted(process.pid for process in running() if process.session == session)


def resident_bytes(pid: int) -> int:
    """
    Measure how much memory a process holds in RAM.
    """
    return int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def send(pid: int, number: signal.Signals) -> None:
    """
    Send a signal to one process, which may have ended meanwhile.
    """
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def end_with_starter() -> None:
    """
    Have the kernel kill this process when the thread that started it ends, however that happens.
    """
    LIBC.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
