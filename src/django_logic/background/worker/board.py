"""
What parent and children tell each other without a word: one slot a child in shared memory, which outlives it.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any
from uuid import UUID

__all__ = ["Board", "Phase", "Slot"]


class Phase(IntEnum):
    """
    Name what a child does.
    """

    BOOTING = 0
    IDLE = 1
    RUNNING = 2
    LEAVING = 3
    #: It can't reach the database and tries again.
    OFFLINE = 4
    #: It leaves since nothing is due, as a draining worker's child does.
    DRAINED = 5


#: Version, phase, message, token, deadline, since, attempts, microseconds of the last claim.
LAYOUT = struct.Struct("<QB7xq16sddII")
VERSION = struct.Struct("<Q")
#: The rows of dead attempts whose account has not landed, 0 for none; more than these are left to luck.
PENDING_COUNT = 64
PENDING = struct.Struct(f"<{PENDING_COUNT}q")
#: Apart from its neighbours', so that two children never write to one line of the cache.
SIZE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """
    Hold what a child said last; times are of the monotonic clock, 0 for none.
    """

    phase: Phase
    message_id: int
    token: UUID
    deadline: float
    since: float
    attempts: int
    claim_us: int

    @property
    def is_overdue(self) -> bool:
        """
        Tell whether it runs an attempt past its time limit.
        """
        return self.phase is Phase.RUNNING and 0 < self.deadline <= time.monotonic()


class Board:
    """
    Share the slots between a parent and the children it forks.

    A slot has one writer, the child; the parent writes it only before the child exists.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pending = SIZE * count
        self._memory = mmap.mmap(-1, self._pending + PENDING.size)

    def reset(self, place: int) -> None:
        """
        Prepare a slot for a new child.
        """
        self.write(place, Phase.BOOTING)

    def write(
        self,
        place: int,
        phase: Phase,
        *,
        message_id: int = 0,
        token: UUID | None = None,
        deadline: float = 0.0,
        attempts: int = 0,
        claim_us: int = 0,
    ) -> None:
        """
        Say what a child does now. The version is odd while the rest is not to be trusted.
        """
        offset = place * SIZE
        version = VERSION.unpack_from(self._memory, offset)[0] | 1
        VERSION.pack_into(self._memory, offset, version)
        raw = token.bytes if token is not None else bytes(16)
        LAYOUT.pack_into(
            self._memory, offset, version, phase, message_id, raw, deadline, time.monotonic(), attempts, claim_us
        )
        VERSION.pack_into(self._memory, offset, version + 1)

    def read(self, place: int) -> Slot:
        """
        Read a slot as it was at one moment; that of a child that died while it wrote is read as it is.
        """
        offset = place * SIZE
        values: Any = None
        for _try in range(100):
            values = LAYOUT.unpack_from(self._memory, offset)
            if not values[0] & 1 and VERSION.unpack_from(self._memory, offset)[0] == values[0]:
                break
        _version, phase, message_id, raw, deadline, since, attempts, claim_us = values
        return Slot(
            phase=Phase(phase),
            message_id=message_id,
            token=UUID(bytes=raw),
            deadline=deadline,
            since=since,
            attempts=attempts,
            claim_us=claim_us,
        )

    def slots(self) -> list[Slot]:
        """
        Read every slot.
        """
        return [self.read(place) for place in range(self.count)]

    def held(self, besides: int) -> list[int]:
        """
        Return the rows that other children run, or ran when they died and whose account has not landed.

        A dead child's row is free before its account says why: whoever took it then would lose that and its pause.
        """
        running = [
            slot.message_id
            for place, slot in enumerate(self.slots())
            if place != besides and slot.phase is Phase.RUNNING
        ]
        return running + [pk for pk in PENDING.unpack_from(self._memory, self._pending) if pk]

    def mark_pending(self, pks: Sequence[int]) -> None:
        """
        Say which dead attempts' rows are to be left alone; the parent alone does.
        """
        padded = [*pks[:PENDING_COUNT], *[0] * (PENDING_COUNT - len(pks))]
        PENDING.pack_into(self._memory, self._pending, *padded)

    def has_idle(self, besides: int = -1) -> bool:
        """
        Tell whether a child, another than this one, waits for work.
        """
        return any(
            self._memory[place * SIZE + VERSION.size] == Phase.IDLE for place in range(self.count) if place != besides
        )
