"""
The order every engine moves in the background, and the rows a move leaves behind.
"""

from __future__ import annotations

from django.db import models

from kits.orders import OrderColumns, OutboxColumns


class Order(OrderColumns):
    """
    From draft through processing to approved.
    """

    state = models.CharField(max_length=32, default="draft", db_index=True)


class StatusChange(models.Model):
    """
    One row per move, as a project writes it by hand: no sequence, no chain of ids.
    """

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="changes")
    from_state = models.CharField(max_length=32)
    to_state = models.CharField(max_length=32)
    reason = models.TextField(blank=True)
    occurred_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.from_state} → {self.to_state}"


class Event(OutboxColumns):
    """
    The one database write of the transition that has work to do.
    """
