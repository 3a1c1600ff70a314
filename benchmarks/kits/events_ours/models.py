"""
The orders whose moves tell events.
"""

from __future__ import annotations

from django.db import models

from kits.orders import OrderColumns


class Order(OrderColumns):
    """
    Moves without work: the fast path.
    """

    state = models.CharField(max_length=32, default="draft", db_index=True)


class EffectOrder(OrderColumns):
    """
    Moves with one side effect under the lock.
    """

    state = models.CharField(max_length=32, default="draft", db_index=True)
