"""
The reasons why open rows do not move, and what is told of each row; `dl_transitions`, the admin and metrics share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django_logic.background.explain.reading import Standing

__all__ = ["Code", "Explanation", "Tally", "decide"]


class Code(StrEnum):
    """
    Name why an open row is where it is.
    """

    SPENT_ALL_ATTEMPTS = "spent_all_attempts"
    RETRY_PAUSE_UNTIL = "retry_pause_until"
    SCHEDULED_FOR = "scheduled_for"
    RUNNING = "running"
    LEASE_LIVE_UNTIL = "lease_live_until"
    NO_WORKER_FOR_QUEUE = "no_worker_for_queue"
    WAITING_BEHIND = "waiting_behind"
    UNKNOWN_TRANSITION = "unknown_transition"
    CLAIMABLE_NOW = "claimable_now"
    HELD_BY_SESSION = "held_by_session"
    #: Stands beside the reason of a row, since it slows all of them.
    HELD_SNAPSHOT = "held_snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """
    Say why one open row is where it is, and what to type next.

    ``note`` is about all rows and stands beside the first one only.
    """

    id: int
    model: str
    instance_id: str
    process: str
    transition: str
    queue: str
    errors_count: int
    attempts_started: int
    age_seconds: float
    code: Code
    detail: str
    next_command: str
    note: str = ""

    def as_data(self) -> Mapping[str, Any]:
        """
        Return what ``dl_transitions --json`` writes.
        """
        detail = f"{self.detail}; {self.note}" if self.note else self.detail
        return {
            "id": self.id,
            "model": self.model,
            "instance_id": self.instance_id,
            "process": self.process,
            "transition": self.transition,
            "queue": self.queue,
            "errors_count": self.errors_count,
            "attempts_started": self.attempts_started,
            "age_seconds": self.age_seconds,
            "code": str(self.code),
            "detail": detail,
            "next_command": self.next_command,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """
    Count the open rows of one queue that have one reason; ``oldest_seconds`` is the age of the oldest.
    """

    queue: str
    code: Code
    count: int
    oldest_seconds: float


#: The standings that say all there is to say, whatever code and workers there are.
SETTLED = {Standing.LEASED: Code.LEASE_LIVE_UNTIL, Standing.SPENT: Code.SPENT_ALL_ATTEMPTS}
WAITING = {
    Standing.BEHIND: Code.WAITING_BEHIND,
    Standing.PAUSED: Code.RETRY_PAUSE_UNTIL,
    Standing.SCHEDULED: Code.SCHEDULED_FOR,
}


def decide(
    standing: Standing, *, is_held: bool, is_attempt: bool, is_unknown: bool, is_served: bool, is_behind: bool
) -> Code:
    """
    Choose the reason; ``is_held`` says that somebody is known to hold the row, ``is_attempt`` that he is its attempt.
    """
    if is_held:
        return Code.RUNNING if is_attempt else Code.HELD_BY_SESSION
    if standing in SETTLED:
        return SETTLED[standing]
    if is_unknown:
        return Code.UNKNOWN_TRANSITION
    if standing in WAITING:
        return WAITING[standing]
    if not is_served:
        return Code.NO_WORKER_FOR_QUEUE
    return Code.WAITING_BEHIND if is_behind else Code.CLAIMABLE_NOW
