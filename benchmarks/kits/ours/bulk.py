"""
The library's bulk move, the raw set-based SQL on the same tables, and the loop.
"""

from __future__ import annotations

import time
from typing import Any

from django_logic.bulk import bulk_transition
from django_logic.models import StatusChange
from harness.contender import WrongResult, check_moved, settle_tables, stage
from kits.ours.models import PlainOrder
from kits.raw.bulk import move_set


def bulk_ours(rows: int) -> dict[str, Any]:
    """
    Move rows through ``bulk_transition``.

    Units: seconds.
    """
    keys = [order.pk for order in stage(PlainOrder, rows)]
    before = StatusChange.objects.count()
    settle_tables()
    started = time.perf_counter()
    # Named as a project would name them: ten thousand keys in a filter cost Django as much as moving them.
    result = bulk_transition(PlainOrder.objects.filter(pk__gte=min(keys), pk__lte=max(keys)), "approve")
    seconds = time.perf_counter() - started
    _check(keys, before)
    if result.moved != rows:
        raise WrongResult(f"bulk_transition says {result.moved} rows moved, {rows} were asked for")
    return {"seconds": seconds}


def bulk_raw(rows: int) -> dict[str, Any]:
    """
    Move rows with one hand-written statement.
    """
    return move_set(PlainOrder, StatusChange, rows)


def bulk_loop(rows: int) -> dict[str, Any]:
    """
    Move rows one call at a time.

    Units: seconds.
    """
    orders = stage(PlainOrder, rows)
    before = StatusChange.objects.count()
    settle_tables()
    started = time.perf_counter()
    for order in orders:
        order.process.approve()
    seconds = time.perf_counter() - started
    _check([order.pk for order in orders], before)
    return {"seconds": seconds}


def _check(keys: list[int], before: int) -> None:
    check_moved(PlainOrder, keys)
    if (written := StatusChange.objects.count() - before) != len(keys):
        raise WrongResult(f"bulk: expected {len(keys)} history rows, found {written}")
