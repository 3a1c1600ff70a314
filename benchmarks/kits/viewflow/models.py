"""
A plain order; viewflow keeps its machine outside the model.
"""

from __future__ import annotations

from django.db import models

from kits.orders import OrderColumns


class Order(OrderColumns):
    """
    An order with a plain state column.
    """

    state = models.CharField(max_length=32, default="draft", db_index=True)
