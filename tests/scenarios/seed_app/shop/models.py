"""
The manual's order, and the items and products its hooks speak of.
"""

from __future__ import annotations

from django.db import models


class Product(models.Model):
    """
    Something in stock.
    """

    stock = models.IntegerField(default=0)


class Order(models.Model):
    """
    The manual's order.
    """

    STATUS_CHOICES = [
        ("draft", "Draft"),
        ("approved", "Approved"),
        ("fulfilled", "Fulfilled"),
        ("fulfilment_failed", "Fulfilment failed"),
        ("cancelled", "Cancelled"),
    ]
    status = models.CharField(max_length=32, choices=STATUS_CHOICES, default="draft")


class Item(models.Model):
    """
    A line of an order.
    """

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="items")
    product = models.ForeignKey(Product, on_delete=models.CASCADE)
    quantity = models.IntegerField(default=1)
