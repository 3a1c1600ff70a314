"""
What a corner shop remembers: orders, payments, stock, parcels and stamps.

`ORDER_MOVES` and `PAYMENT_MOVES` are the two machines as data: they go to the database as constraints, and a system
check compares them with the processes. What a move has to do besides is told in `process`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models

from django_logic import StateConstraint, TransitionConstraint

if TYPE_CHECKING:
    from example.shop.process import OrderProcess, PaymentProcess


class OrderStatus(models.TextChoices):
    """
    Name the states of an order.
    """

    DRAFT = "draft", "Draft"
    PLACED = "placed", "Placed"
    PROCESSING = "processing", "Processing"
    #: A worker is at it.
    DISPATCHING = "dispatching", "Dispatching"
    #: The worker gave it up, a person has to look.
    ON_HOLD = "on_hold", "On hold"
    FULFILLED = "fulfilled", "Fulfilled"
    CANCELLED = "cancelled", "Cancelled"


class PaymentStatus(models.TextChoices):
    """
    Name the states of a payment.
    """

    PENDING = "pending", "Pending"
    PROCESSING = "processing", "Processing"
    SUCCEEDED = "succeeded", "Succeeded"
    FAILED = "failed", "Failed"


ORDER_MOVES = {
    OrderStatus.DRAFT: {OrderStatus.PLACED, OrderStatus.CANCELLED},
    OrderStatus.PLACED: {OrderStatus.PROCESSING, OrderStatus.CANCELLED},
    OrderStatus.PROCESSING: {OrderStatus.DISPATCHING, OrderStatus.FULFILLED, OrderStatus.CANCELLED},
    OrderStatus.DISPATCHING: {OrderStatus.FULFILLED, OrderStatus.ON_HOLD},
    OrderStatus.ON_HOLD: {OrderStatus.DISPATCHING, OrderStatus.CANCELLED},
    OrderStatus.FULFILLED: set(),
    OrderStatus.CANCELLED: set(),
}

PAYMENT_MOVES = {
    PaymentStatus.PENDING: {PaymentStatus.PROCESSING},
    PaymentStatus.PROCESSING: {PaymentStatus.SUCCEEDED, PaymentStatus.FAILED},
    PaymentStatus.SUCCEEDED: set(),
    PaymentStatus.FAILED: set(),
}


class StockItem(models.Model):
    """
    A thing on the shelf; reserved pieces are still on hand, but promised.
    """

    name = models.CharField(max_length=50)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    on_hand = models.PositiveIntegerField(default=0)
    reserved = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """
    An order; `status` changes through `order.process` alone.
    """

    customer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="orders")
    status = models.CharField(max_length=12, choices=OrderStatus.choices, default=OrderStatus.DRAFT, db_index=True)
    #: The warehouse's number for what it keeps aside; empty while it keeps nothing.
    reservation = models.CharField(max_length=20, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    process: OrderProcess  # bound in apps.py

    class Meta:
        constraints = [
            StateConstraint(field="status", states=OrderStatus, name="shop_order_status"),
            TransitionConstraint(field="status", table=ORDER_MOVES, name="shop_order_moves", initial=OrderStatus.DRAFT),
        ]

    def __str__(self) -> str:
        return f"Order {self.pk} ({self.status})"

    def total(self) -> Decimal:
        """
        Add up the lines.
        """
        return sum((line.item.price * line.quantity for line in self.lines.select_related("item")), Decimal(0))


class OrderLine(models.Model):
    """
    So many of one thing in an order.
    """

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    item = models.ForeignKey(StockItem, on_delete=models.PROTECT, related_name="+")
    quantity = models.PositiveIntegerField(default=1)

    def __str__(self) -> str:
        return f"{self.quantity} x {self.item}"


class Payment(models.Model):
    """
    One attempt to pay an order; a second attempt is a payment of its own.
    """

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="payments")
    amount = models.DecimalField(max_digits=8, decimal_places=2)
    status = models.CharField(max_length=12, choices=PaymentStatus.choices, default=PaymentStatus.PENDING)
    updated_at = models.DateTimeField(auto_now=True)

    process: PaymentProcess  # bound in apps.py

    class Meta:
        constraints = [
            StateConstraint(field="status", states=PaymentStatus, name="shop_payment_status"),
            TransitionConstraint(
                field="status", table=PAYMENT_MOVES, name="shop_payment_moves", initial=PaymentStatus.PENDING
            ),
        ]

    def __str__(self) -> str:
        return f"Payment {self.pk} ({self.status})"


class LedgerLine(models.Model):
    """
    Money that came in.
    """

    payment = models.ForeignKey(Payment, on_delete=models.PROTECT, related_name="ledger_lines")
    amount = models.DecimalField(max_digits=8, decimal_places=2)

    def __str__(self) -> str:
        return str(self.amount)


class Parcel(models.Model):
    """
    A parcel that went out. Nothing but the order's own move keeps a second one from being packed.
    """

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="parcels")
    #: The courier's number; empty for a parcel the customer fetches.
    tracking = models.CharField(max_length=20, blank=True)

    def __str__(self) -> str:
        return f"Parcel {self.pk}"


class Stamp(models.Model):
    """
    A stamp on the customer's card, for an order. Nothing but the inbox keeps from a second one.
    """

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="stamps")

    def __str__(self) -> str:
        return f"Stamp {self.pk}"
