"""
The library's moves, and its own statement as the limit.
"""

from __future__ import annotations

from typing import Any

from django.db import models

from django_logic.models import StatusChange
from harness.contender import Contender, OrmContender
from harness.contention import contend
from harness.statement import Statement, StatementContender, record
from kits.ours.bulk import bulk_loop, bulk_ours, bulk_raw
from kits.ours.contention import contend_through_calls
from kits.ours.models import AnnouncedEffectOrder, AnnouncedOrder, EffectOrder, OutboxMessage, PlainOrder


def approve(order: Any) -> None:
    """
    Move one order.
    """
    order.process.approve()


def statement() -> Statement:
    """
    Return what the writer sends on the fast path.
    """
    return record(PlainOrder, approve)


def contention(threads: int, attempts: int) -> dict[str, Any]:
    """
    Let threads fight for one row with the writer's own statement.
    """
    return contend(PlainOrder, StatusChange, statement(), threads=threads, attempts=attempts)


def limit(key: str, label: str, **options: bool) -> StatementContender:
    """
    Describe one way of sending the writer's statement without the library.
    """
    return StatementContender(key=key, label=label, model=PlainOrder, history=StatusChange, source=statement, **options)


def ours(key: str, label: str, model: type[models.Model], *, is_announced: bool = False) -> OrmContender:
    """
    Describe one way of moving through the library.
    """
    records: list[type[models.Model]] = [StatusChange]
    if is_announced:
        records.append(OutboxMessage)
    return OrmContender(key=key, label=label, model=model, move=approve, records=records)


CONTENDERS: list[Contender] = [
    limit("raw", "raw limit: our statement, bare cursor"),
    limit("raw_prepared", "our statement, prepared by the driver", is_prepared=True),
    limit("raw_locked", "lock + read + our statement, bare cursor", locks_first=True),
    ours("ours_fast", "ours, fast path", PlainOrder),
    ours("ours_outbox", "ours, fast path + outbox row", AnnouncedOrder, is_announced=True),
    ours("ours_effect", "ours, one side effect", EffectOrder),
    ours("ours_effect_outbox", "ours, one side effect + outbox row", AnnouncedEffectOrder, is_announced=True),
]
EXTRAS = {
    "contention": contention,
    "contention_calls": contend_through_calls,
    "bulk_ours": bulk_ours,
    "bulk_raw": bulk_raw,
    "bulk_loop": bulk_loop,
}
