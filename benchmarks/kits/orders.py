"""
The order every contender moves: same columns, same index, whatever the library.
"""

from __future__ import annotations

from django.db import models


class OrderColumns(models.Model):
    """
    Columns shared by every contender's order; each adds its own state column.
    """

    customer = models.CharField(max_length=100)
    amount = models.DecimalField(max_digits=10, decimal_places=2, default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True


class OutboxColumns(models.Model):
    """
    The event row of the contenders that are asked for equal guarantees.
    """

    topic = models.CharField(max_length=100)
    payload = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True
