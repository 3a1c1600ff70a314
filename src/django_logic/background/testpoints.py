"""
Stop or break a worker at named points, for tests that must hit one exact window.

Off unless the process starts with ``DL_TEST_POINTS`` in its environment; a point then costs one comparison.
The value is JSON: a name, and what happens to a process that comes by::

    {"before_commit": "kill", "after_claim": {"do": "pause:/tmp/gate", "skip": 1, "times": 1}}

``skip`` lets the first ones pass and ``times`` limits how often it happens; both count the process that read the
environment together with all it forks. What is *not* done here: deciding where the points are.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["POINTS", "PointReached", "Stop", "pause", "reach", "read_plan"]

VARIABLE = "DL_TEST_POINTS"
POINTS = (
    "after_claim",  # the claim is committed, nothing of the attempt has begun
    "after_stamp",  # the attempt's transaction holds the message row
    "before_commit",  # everything is written, the transaction is still open
    "after_commit",  # the outcome is committed, durable rows wait
    "before_callback",  # a durable row is claimed, its hook has not run
    "before_accounting",  # an attempt has ended badly, its record is not written
    "in_upkeep",  # the safety nets have begun
)
EXIT_STATUS = 7
PASS, ACT = b"p", b"a"


class PointReached(RuntimeError):
    """
    Say that a test point was told to raise.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """
    Hold what happens at one point, and the pipe that deals out who it happens to.

    A byte read from a pipe is read by one process alone, so forked processes share the count without a lock.
    """

    deed: str
    argument: str
    turns: int
    is_limited: bool

    def takes_its_turn(self) -> bool:
        """
        Tell whether this process is one that it happens to, and use up one turn.
        """
        try:
            return os.read(self.turns, 1) == ACT
        except BlockingIOError:
            return not self.is_limited


def read_plan(text: str | None) -> dict[str, Stop] | None:
    """
    Read the value of ``DL_TEST_POINTS``.

    Shape: None when the variable is absent or empty, which turns every point off.
    Raises: ValueError for an unknown point or deed.
    """
    if not text:
        return None
    stops = {}
    for name, wanted in json.loads(text).items():
        if name not in POINTS:
            raise ValueError(f"{VARIABLE}: unknown point {name!r}. Use one of {', '.join(POINTS)}.")
        stops[name] = _stop(name, wanted if isinstance(wanted, Mapping) else {"do": wanted})
    return stops


def reach(name: str) -> None:
    """
    Come by a point: nothing happens unless a test has asked for it.
    """
    if _plan is None:
        return
    stop = _plan.get(name)
    if stop is not None and stop.takes_its_turn():
        _act(stop, name)


def pause(path: str, note: str = "") -> None:
    """
    Say in the FIFO at `path` that this process waits, and wait for one byte from ``<path>.go``.

    Where nobody holds the other ends any more, the process goes on, so that no test leaves one waiting for ever.
    """
    # Opened for both directions, a FIFO needs no reader and the opening never waits.
    told = os.open(path, os.O_RDWR)
    try:
        os.write(told, f"{os.getpid()} {note}\n".encode())
        waiting = os.open(f"{path}.go", os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.set_blocking(waiting, True)
            os.read(waiting, 1)
        finally:
            os.close(waiting)
    finally:
        os.close(told)


def _stop(name: str, wanted: Mapping[str, Any]) -> Stop:
    deed, _, argument = str(wanted["do"]).partition(":")
    if deed not in _DEEDS:
        raise ValueError(f"{VARIABLE}: unknown deed {deed!r} at {name}. Use one of {', '.join(_DEEDS)}.")
    turns, dealer = os.pipe()
    os.set_blocking(turns, False)
    os.write(dealer, PASS * int(wanted.get("skip", 0)) + ACT * int(wanted.get("times", 0)))
    # The dealer stays open: a closed one would read as an end of file instead of as an empty pipe.
    return Stop(deed=deed, argument=argument, turns=turns, is_limited="times" in wanted)


def _act(stop: Stop, name: str) -> None:
    match stop.deed:
        case "pause":
            pause(stop.argument, name)
        case "exit":
            os._exit(int(stop.argument or EXIT_STATUS))
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "kill_group":
            os.killpg(0, signal.SIGKILL)
        case _:
            raise PointReached(f"The test point {name} was told to raise.")


_DEEDS = ("pause", "exit", "kill", "kill_group", "raise")
_plan = read_plan(os.environ.get(VARIABLE))
