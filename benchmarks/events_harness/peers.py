"""
A peer's moves: the state, a history row and the event, each by the ORM, in one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from events_harness.turns import TURN, Way, empty, settle, take_turns
from harness.contender import WrongResult, stage
from kits.background_jobs.models import Order, StatusChange
from kits.background_jobs.moves import BUSY, begin

BATCH = 500
#: Publishes the event with a number under a key, in the caller's transaction.
Publish = Callable[[int, str], object]


def move(order: Any, publish: Publish | None) -> int:
    """
    Move an order, with its event or without; return when it was committed.
    """
    with transaction.atomic():
        begin(order)
        if publish is not None:
            publish(order.pk, str(order.pk))
    return time.perf_counter_ns()


def write(events: int, publish: Publish, *, is_hot: bool) -> None:
    """
    Write events, many to a transaction, since nobody times them.
    """
    for start in range(0, events, BATCH):
        with transaction.atomic():
            for number in range(start, min(start + BATCH, events)):
                publish(number, "hot" if is_hot else str(number))


def payload(number: int, key: str) -> dict[str, Any]:
    """
    Return what our own messages tell.
    """
    return {
        "number": number,
        "order_id": number,
        "object_id": key,
        "from": "draft",
        "to": "approved",
        "action": "approve",
        "sequence": 1,
        "actor": "",
        "reason": "",
        "occurred_at": "2026-11-30T12:00:00.000Z",
    }


def cost(publish: Publish, tables: Any, *, moves: int, seed: int) -> dict[str, float]:
    """
    Time moves with and without the event, in turns.
    """
    empty("default", tables)
    ways = {
        name: Way(orders=stage(Order, TURN + moves), move=how, around=nothing)
        for name, how in (("off", lambda order: move(order, None)), ("on", lambda order: move(order, publish)))
    }
    settle()
    spent = take_turns(ways, seed=seed)
    wanted = 2 * (TURN + moves)
    found = Order.objects.filter(state=BUSY).count(), StatusChange.objects.count()
    if found != (wanted, wanted):
        raise WrongResult(f"expected {wanted} moved orders and history rows, found {found}")
    return spent


@contextmanager
def nothing() -> Iterator[None]:
    """
    Surround a turn by nothing.
    """
    yield
