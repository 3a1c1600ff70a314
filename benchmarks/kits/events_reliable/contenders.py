"""
django-reliable-outbox as its README shows it: `publish` in the caller's transaction, and the command `outbox_worker`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.db import models
from reliable_outbox import publish

from background_harness.contender import Program
from events_harness import peers, trials
from events_harness.outbox import Profile
from harness.contender import Contender
from kits.background_jobs.models import Order, StatusChange

TABLE = apps.get_model("reliable_outbox", "OutboxMessage")._meta.db_table


def tell(number: int, key: str) -> None:
    """
    Write one event.
    """
    publish("order.approved", peers.payload(number, key), key=key)


class Reliable:
    """
    The library and its worker.
    """

    key = "reliable_outbox"
    profile = Profile(label="django-reliable-outbox, outbox_worker", measures=("costs", "drains", "streams", "lags"))
    order: type[models.Model] = Order
    queue_table = TABLE
    tables: Sequence[str] = (TABLE, StatusChange._meta.db_table, Order._meta.db_table)

    def write(self, alias: str, events: int, *, is_hot: bool, to_stream: bool = False) -> None:
        """
        Write events.
        """
        peers.write(events, tell, is_hot=is_hot)

    def programs(self, relays: int, alias: str) -> Sequence[Program]:
        """
        Return that many workers.
        """
        return [Program(arguments=["-m", "django", "outbox_worker"])] * relays

    def move(self, order: Any) -> int:
        """
        Move an order with its event.
        """
        return peers.move(order, tell)


def cost(contender: str, shape: str, by: str, moves: int, seed: int) -> dict[str, float]:
    """
    Time moves with and without an event.
    """
    return peers.cost(tell, Reliable.tables, moves=moves, seed=seed)


CONTENDERS: list[Contender] = []
EXTRAS = {**trials.extras(Reliable()), "cost": cost}
