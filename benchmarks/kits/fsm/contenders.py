"""
django-fsm-2 as its manual shows it, and wrapped by hand until it promises what we promise.

Every save names its columns: the cheapest form the library allows.
"""

from __future__ import annotations

from django.db import transaction
from django_fsm_log.models import StateLog

from harness.contender import Contender, OrmContender
from kits.fsm.models import Order, OutboxMessage

WRITTEN = ["state", "updated_at"]


def approve_bare(order: Order) -> None:
    """
    Move, save, log: no lock and no common transaction.
    """
    order.approve()
    order.save(update_fields=WRITTEN)


def approve_locked(order: Order) -> None:
    """
    Lock and re-read, move, save and log in one transaction.
    """
    with transaction.atomic():
        fresh = Order.objects.select_for_update().get(pk=order.pk)
        fresh.approve()
        fresh.save(update_fields=WRITTEN)


def approve_equal(order: Order) -> None:
    """
    The same with the event row.
    """
    with transaction.atomic():
        fresh = Order.objects.select_for_update().get(pk=order.pk)
        fresh.approve()
        fresh.save(update_fields=WRITTEN)
        announce(fresh)


def approve_equal_with_effect(order: Order) -> None:
    """
    The same with work in the transition's body.
    """
    with transaction.atomic():
        fresh = Order.objects.select_for_update().get(pk=order.pk)
        fresh.approve_with_effect()
        fresh.save(update_fields=WRITTEN)
        announce(fresh)


def announce(order: Order) -> None:
    """
    Insert the event of the move.
    """
    OutboxMessage.objects.create(
        topic=f"order.{order.state}", payload={"order_id": order.pk, "from": "draft", "to": order.state}
    )


CONTENDERS: list[Contender] = [
    OrmContender(
        key="fsm_bare",
        label="django-fsm-2 + log, bare (no lock)",
        model=Order,
        move=approve_bare,
        records=[StateLog],
    ),
    OrmContender(
        key="fsm_locked",
        label="django-fsm-2 + log, lock + atomic",
        model=Order,
        move=approve_locked,
        records=[StateLog],
    ),
    OrmContender(
        key="fsm_equal",
        label="django-fsm-2 + log, lock + atomic + outbox row (equal guarantees)",
        model=Order,
        move=approve_equal,
        records=[StateLog, OutboxMessage],
    ),
    OrmContender(
        key="fsm_equal_effect",
        label="django-fsm-2 equal guarantees, one side effect",
        model=Order,
        move=approve_equal_with_effect,
        records=[StateLog, OutboxMessage],
    ),
]
