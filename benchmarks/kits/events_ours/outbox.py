"""
The library as the harness drives it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.db import connection, models
from django.test.utils import override_settings

from background_harness.contender import Program
from django_logic.models import StatusChange
from django_logic.outbox.models import OutboxDelivery, OutboxMessage, OutboxTally
from events_harness.outbox import Profile
from kits.events_ours.models import EffectOrder, Order

BATCH = 1000


class Ours:
    """
    Moves, messages, and `dl_relay`.
    """

    key = "ours"
    profile = Profile(label="this library, dl_relay", measures=("costs", "drains", "streams", "lags", "claims"))
    order: type[models.Model] = Order
    queue_table = OutboxDelivery._meta.db_table
    tables: Sequence[str] = tuple(
        model._meta.db_table for model in (OutboxDelivery, OutboxMessage, OutboxTally, StatusChange, Order, EffectOrder)
    )

    def write(self, alias: str, events: int, *, is_hot: bool, to_stream: bool = False) -> None:
        """
        Write messages of the same shape as a move's, with a delivery to where the relays of this trial deliver.
        """
        publishers = {"OUTBOX_PUBLISHERS": {"redis": settings.STREAMS}} if to_stream else {}
        with override_settings(DJANGO_LOGIC=publishers):
            for start in range(0, events, BATCH):
                OutboxMessage.objects.using(alias).bulk_create(
                    [message(number, is_hot=is_hot) for number in range(start, min(start + BATCH, events))]
                )

    def programs(self, relays: int, alias: str) -> Sequence[Program]:
        """
        Return that many relays.
        """
        return [Program(arguments=["-m", "django", "dl_relay", "--database", alias])] * relays

    def move(self, order: Any) -> int:
        """
        Move; the first statement commits by itself, the second wakes the relay.
        """
        ends: list[int] = []

        def watch(execute: Any, *arguments: Any) -> Any:
            try:
                return execute(*arguments)
            finally:
                ends.append(time.perf_counter_ns())

        with connection.execute_wrapper(watch):
            order.process.approve()
        return ends[0]


class Prepared(Ours):
    """
    Relays whose connections let PostgreSQL keep statements.
    """

    key = "ours_prepared"
    profile = Profile(label="this library, prepared", measures=("drains", "lags"))

    def programs(self, relays: int, alias: str) -> Sequence[Program]:
        """
        Return the same command with settings of its own.
        """
        return [
            Program(arguments=one.arguments, environment={"BENCH_PREPARED": "1"})
            for one in super().programs(relays, alias)
        ]


def message(number: int, *, is_hot: bool) -> OutboxMessage:
    """
    Return one message, not saved yet.
    """
    key = "hot" if is_hot else str(number)
    payload = {
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
    return OutboxMessage(
        topic="order.approved", aggregate="bench_events.order", key=key, sequence=number, payload=payload
    )
