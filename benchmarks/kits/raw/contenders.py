"""
The hand-written statement, bare and behind a lock.
"""

from __future__ import annotations

from typing import Any

from harness.contender import Contender
from harness.contention import contend
from harness.statement import Statement, StatementContender
from kits.raw.bulk import move_set
from kits.raw.models import Order, StatusChange
from kits.raw.statements import move_one


def statement() -> Statement:
    """
    Return the hand-written statement.
    """
    return move_one(Order, StatusChange)


def contention(threads: int, attempts: int) -> dict[str, Any]:
    """
    Let threads fight for one row with the hand-written statement.
    """
    return contend(Order, StatusChange, statement(), threads=threads, attempts=attempts)


def bulk(rows: int) -> dict[str, Any]:
    """
    Move rows as a set.
    """
    return move_set(Order, StatusChange, rows)


CONTENDERS: list[Contender] = [
    StatementContender(
        key="hand_statement",
        label="hand-written statement, bare cursor",
        model=Order,
        history=StatusChange,
        source=statement,
    ),
    StatementContender(
        key="hand_prepared",
        label="hand-written statement, prepared by the driver",
        model=Order,
        history=StatusChange,
        source=statement,
        is_prepared=True,
    ),
    StatementContender(
        key="hand_locked",
        label="hand-written lock + read + statement",
        model=Order,
        history=StatusChange,
        source=statement,
        locks_first=True,
    ),
]
EXTRAS = {"contention": contention, "bulk_raw": bulk}
