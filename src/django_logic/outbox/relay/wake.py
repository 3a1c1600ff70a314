"""
Waking relays: the word after a move's commit, and how soon a relay looks again for moves that sent none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from django.db import connections

from django_logic.outbox import options
from django_logic.wakeup import EVENTS, notify, once_after_commit

__all__ = ["looks", "wake"]

#: A process sends at most one word in this time, since each costs a trip to the database. Seconds.
QUIET_TIME = 0.05
#: A relay that has found something looks again after this time, and then less and less often: well within it is the
#: quiet time of whoever woke it, so moves that sent no word are found as quickly. Seconds.
FIRST_LOOK, GROWTH = 0.005, 2.0

_sent_at: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Wake:
    """
    Wake the relays of a database, unless this process has just done so.
    """

    alias: str

    def __call__(self) -> None:
        now = time.monotonic()
        if now - _sent_at.get(self.alias, -QUIET_TIME) >= QUIET_TIME and options.has_own_relay():
            _sent_at[self.alias] = now
            notify(EVENTS, self.alias, "")


def wake(alias: str) -> None:
    """
    Wake the relays of a database after the commit.
    """
    if connections[alias].vendor == "postgresql":
        once_after_commit(alias, Wake(alias))


def looks(longest: float) -> Iterator[float]:
    """
    Yield how long to wait before each next look, from a find or a word on.
    """
    pause = FIRST_LOOK
    while True:
        yield min(pause, longest)
        pause = min(pause * GROWTH, longest)
