"""
One order per way of moving, so that what is registered for one touches no other.
"""

from __future__ import annotations

from django.db import models

from kits.orders import OrderColumns, OutboxColumns


class PlainOrder(OrderColumns):
    """
    Moves without work: the fast path.
    """

    state = models.CharField(max_length=32, default="draft", db_index=True)


class EffectOrder(OrderColumns):
    """
    Moves with one side effect under the lock.
    """

    state = models.CharField(max_length=32, default="draft", db_index=True)


class AnnouncedOrder(OrderColumns):
    """
    Moves without work, with an event row beside the history row.
    """

    state = models.CharField(max_length=32, default="draft", db_index=True)


class AnnouncedEffectOrder(OrderColumns):
    """
    Moves with one side effect and an event row.
    """

    state = models.CharField(max_length=32, default="draft", db_index=True)


class OutboxMessage(OutboxColumns):
    """
    The event of a move.
    """
