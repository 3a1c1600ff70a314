"""
Play what the lesson's service talks to: a warehouse behind a network, and a task queue.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from django.db import connection

from tests.scenarios.seed_app.models import Stock


class Warehouse:
    """
    Play the remote service: it is slow, it is outside, it must be told of what was given up.
    """

    def __init__(self) -> None:
        self.held: list[str] = []
        self.released: list[str] = []
        self.during_transaction: list[bool] = []

    def reserve(self, order_id: int) -> Any:
        """
        Reserve, over the network.
        """
        self.during_transaction.append(connection.in_atomic_block)
        self.held.append(f"r{len(self.held) + 1}")
        return SimpleNamespace(id=self.held[-1])

    def release(self, reservation: Any) -> None:
        """
        Give back.
        """
        self.released.append(reservation.id)


class Task:
    """
    Play a task queue that notes what was enqueued and whether the row was durable by then.
    """

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def delay(self, *arguments: Any) -> None:
        """
        Enqueue.
        """
        assert not connection.in_atomic_block
        self.sent.append(arguments)


def reserved() -> list[int]:
    """
    Return how much of each stock is reserved.
    """
    return list(Stock.objects.order_by("sku").values_list("reserved", flat=True))
