"""
django-outbox-pattern as its README shows it: a row of its model in the caller's transaction, and the command `publish`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import models
from django_outbox_pattern.models import Published

from background_harness.contender import Program
from events_harness import peers, trials
from events_harness.outbox import Profile
from harness.contender import Contender
from harness.servers import free_port
from kits.background_jobs.models import Order, StatusChange

PORT = str(free_port())


def publish(number: int, key: str) -> None:
    """
    Write one event.
    """
    Published.objects.create(destination="/topic/orders", body=peers.payload(number, key))


class Pattern:
    """
    The library, its command, and a receiver that confirms what comes. Nothing is said of an order, so none is asked.
    """

    key = "outbox_pattern"
    profile = Profile(label="django-outbox-pattern, publish", measures=("costs", "drains", "lags"), relays=(1,))
    order: type[models.Model] = Order
    queue_table = ""
    tables: Sequence[str] = tuple(model._meta.db_table for model in (Published, StatusChange, Order))

    def write(self, alias: str, events: int, *, is_hot: bool, to_stream: bool = False) -> None:
        """
        Write events.
        """
        peers.write(events, publish, is_hot=is_hot)

    def programs(self, relays: int, alias: str) -> Sequence[Program]:
        """
        Return the receiver and the publishers.
        """
        port = {"BENCH_STOMP_PORT": PORT}
        receiver = Program(arguments=["-m", "kits.events_pattern.receiver"], environment=port)
        return [receiver, *[Program(arguments=["-m", "kits.events_pattern.publisher"], environment=port)] * relays]

    def move(self, order: Any) -> int:
        """
        Move an order with its event.
        """
        return peers.move(order, publish)


def cost(contender: str, shape: str, by: str, moves: int, seed: int) -> dict[str, float]:
    """
    Time moves with and without an event.
    """
    return peers.cost(publish, Pattern.tables, moves=moves, seed=seed)


CONTENDERS: list[Contender] = []
EXTRAS = {**trials.extras(Pattern()), "cost": cost}
