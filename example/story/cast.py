"""
Who and what the chapters speak of.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from django.contrib.auth.models import User

from example.shop.models import Order, Payment, StockItem

__all__ = ["Cast", "assemble"]


@dataclass(slots=True, kw_only=True)
class Cast:
    """
    Hold the customer, the goods, and the order that chapters 2 to 5 follow.
    """

    ada: User
    mug: StockItem
    order: Order | None = None

    def the_order(self) -> Order:
        """
        Return the order that chapter 2 placed.
        """
        if self.order is None:
            raise LookupError("Chapter 2 placed no order.")
        return self.order

    def place_and_pay(self) -> Order:
        """
        Bring a new order as far as chapter 2 does, without a word.
        """
        order = Order.objects.create(customer=self.ada)
        order.lines.create(item=self.mug, quantity=2)
        order.process.place(user=self.ada, reason="checkout")
        payment = Payment.objects.create(order=order, amount=order.total())
        payment.process.submit()
        payment.process.settle(received=order.total())
        return order

    def shelf(self) -> StockItem:
        """
        Read the mugs' shelf anew.
        """
        return StockItem.objects.get(pk=self.mug.pk)


def assemble() -> Cast:
    """
    Find or make the customer, and put a new lot of mugs on the shelf.
    """
    ada, _ = User.objects.get_or_create(username="ada", defaults={"email": "ada@example.com"})
    return Cast(ada=ada, mug=StockItem.objects.create(name="Mug", price=Decimal("12.50"), on_hand=1000))
