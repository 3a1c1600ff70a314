"""
What a user of a plain task queue writes around it to get the same rows, in the cheapest form Django offers.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from kits.background_jobs.models import Event, Order, StatusChange

DRAFT, BUSY, DONE = "draft", "processing", "approved"


def begin(order: Order) -> None:
    """
    Move an order to the busy state.

    Transaction: needs the caller's, in which the task is enqueued as well.
    """
    _move(order, DRAFT, BUSY)


def finish(key: int, *, has_write: bool) -> None:
    """
    Do the work of the task and move the order to its target.

    Transaction: opens its own; the order's row is locked.
    """
    with transaction.atomic():
        order = Order.objects.select_for_update().get(pk=key)
        if has_write:
            write_event(order)
        _move(order, BUSY, DONE)


def write_event(instance: Any, **_kwargs: object) -> None:
    """
    Insert one row: the work of the transition with one database write.
    """
    Event.objects.create(topic="order.approved", payload={"order_id": instance.pk})


def _move(order: Order, expected: str, target: str) -> None:
    now = timezone.now()
    if not Order.objects.filter(pk=order.pk, state=expected).update(state=target, updated_at=now):
        raise RuntimeError(f"Order {order.pk} is not in {expected!r}.")
    order.state = target
    StatusChange.objects.create(order=order, from_state=expected, to_state=target, occurred_at=now)
