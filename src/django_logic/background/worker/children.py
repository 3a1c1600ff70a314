"""
The children of a worker as their parent sees them: pids, slots, deadlines and exit statuses; no model, no database.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from django_logic.background.worker.accounts import Account, Fate
from django_logic.background.worker.board import Board, Phase, Slot

__all__ = ["Children", "describe", "kill"]

logger = logging.getLogger("django-logic.worker")

#: A child that has not said a word by then hangs, as on a lock some thread held when it was forked; seconds.
BOOT_LIMIT = 30.0
#: Children that break as they begin are replaced no faster than this; seconds.
RESPAWN_PAUSE = 1.0


@dataclass(slots=True)
class Kin:
    """
    Hold one child: when it was made, and why it was killed, if it was.
    """

    pid: int
    place: int
    born: float
    doom: Fate | None = None


class Children:
    """
    Keep a number of attempt children alive, end those that overrun, and say what became of their attempts.
    """

    def __init__(self, board: Board, spawn: Callable[[int], int]) -> None:
        self.board, self.spawn = board, spawn
        self.by_pid: dict[int, Kin] = {}
        self.not_before: dict[int, float] = {}
        #: The places whose child left since nothing was due; nobody is put there until something may be.
        self.drained: set[int] = set()
        self.looked_again = 0.0
        self.is_closing = False

    @property
    def are_ready(self) -> bool:
        """
        Tell whether every child has reached the database and waits or works.
        """
        phases = {slot.phase for slot in self.board.slots()}
        return len(self.by_pid) == self.board.count and phases <= {Phase.IDLE, Phase.RUNNING}

    def fill(self) -> None:
        """
        Make the children that are missing; where the system makes none now, try again later.
        """
        if self.is_closing:
            return
        taken = {kin.place for kin in self.by_pid.values()} | self.drained
        for place in range(self.board.count):
            if place in taken or time.monotonic() < self.not_before.get(place, 0.0):
                continue
            self.board.reset(place)
            pid = self.spawn(place)
            if pid:
                self.by_pid[pid] = Kin(pid, place, time.monotonic())
            else:
                self.not_before[place] = time.monotonic() + RESPAWN_PAUSE

    def look_again(self) -> None:
        """
        Let draining children look once more: an account may have made a row due.
        """
        self.drained.clear()
        self.looked_again = time.monotonic()

    def enforce(self) -> None:
        """
        Kill children whose attempt is past its limit, and those that hang before their first word.
        """
        for kin in self.by_pid.values():
            if kin.doom is not None:
                continue
            slot = self.board.read(kin.place)
            if slot.is_overdue:
                self.doom(kin, Fate.TIMEOUT)
            elif slot.phase is Phase.BOOTING and time.monotonic() - kin.born > BOOT_LIMIT:
                logger.error("Child %d has not begun after %.0f s and is replaced", kin.pid, BOOT_LIMIT)
                self.doom(kin, Fate.CRASHED)

    def doom(self, kin: Kin, fate: Fate) -> None:
        """
        Kill a child; what it held is told once it is dead, since only then does nothing change any more.
        """
        kin.doom = fate
        kill(kin.pid, signal.SIGKILL)

    def close(self) -> None:
        """
        Ask every child to finish its attempt and leave; make no new ones.
        """
        self.is_closing = True
        for kin in self.by_pid.values():
            kill(kin.pid, signal.SIGTERM)

    def end(self) -> None:
        """
        End every child now; attempts that run are put back without counting.
        """
        self.is_closing = True
        for kin in self.by_pid.values():
            if kin.doom is None:
                self.doom(kin, Fate.RELEASED)

    def bury(self, pid: int, status: int) -> Account | None:
        """
        Take note of a child's end; return what there is to say of the attempt it held.
        """
        kin = self.by_pid.pop(pid, None)
        if kin is None:
            return None
        slot = self.board.read(kin.place)
        if slot.phase is Phase.DRAINED:
            if kin.born >= self.looked_again:  # else it may have looked before a row was due again
                self.drained.add(kin.place)
            return None
        if slot.phase is not Phase.RUNNING:
            if slot.phase is not Phase.LEAVING and kin.doom is not Fate.RELEASED:
                logger.error("Child %d ended between attempts: %s", pid, describe(status))
                self.not_before[kin.place] = time.monotonic() + RESPAWN_PAUSE
            return None
        return self.account(kin, slot, status)

    def account(self, kin: Kin, slot: Slot, status: int) -> Account:
        """
        Say what became of an attempt. One that began as its predecessor was being killed is no time-out.
        """
        fate, text = Fate.CRASHED, describe(status)
        if kin.doom is Fate.RELEASED:
            fate, text = Fate.RELEASED, "put back as the worker stopped"
        elif kin.doom is Fate.TIMEOUT and slot.is_overdue:
            fate, text = Fate.TIMEOUT, f"killed after {time.monotonic() - slot.since:.1f} s"
        elif kin.doom is not None:
            fate, text = Fate.RELEASED, "its process was ended for another attempt"
        return Account(message_id=slot.message_id, token=str(slot.token), fate=fate, text=text)


def describe(status: int) -> str:
    """
    Say how a process ended.
    """
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"its process left with exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"its process was ended by {name}"


def kill(pid: int, number: int) -> None:
    """
    Send a signal; a process that has gone needs none.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
