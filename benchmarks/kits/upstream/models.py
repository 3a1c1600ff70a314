"""
An order whose process is bound in the app configuration.
"""

from __future__ import annotations

from django.db import models

from kits.orders import OrderColumns


class Order(OrderColumns):
    """
    An order with a plain state column.
    """

    state = models.CharField(max_length=32, default="draft", db_index=True)
