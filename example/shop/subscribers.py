"""
What the shop itself does when it hears of a move. A relay calls these functions: at least once, in order per order.
"""

from __future__ import annotations

from django_logic.outbox import Event, inbox, subscribe
from example.shop.dispatch import printer
from example.shop.models import Stamp

__all__ = ["print_thanks", "stamp_card"]


@subscribe("order.placed")
@inbox("stamp card")
def stamp_card(event: Event) -> None:
    """
    Put a stamp on the customer's card. The inbox keeps from a second one, whatever dies in between.
    """
    Stamp.objects.create(order_id=event.payload["order_id"])


@subscribe("order.placed")
def print_thanks(event: Event) -> None:
    """
    Print a card that says thanks. The printer is not in our database, so it gets a key and prints nothing twice.
    """
    printer.do(event.id)
