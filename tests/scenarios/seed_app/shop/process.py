"""
The manual's process, word for word.
"""

from __future__ import annotations

from typing import Any

from django_logic import Process, Transition

SENT: list[Any] = []


def has_stock(instance: Any, **kwargs: Any) -> bool:
    """
    Tell whether every item can be taken.
    """
    return all(item.product.stock >= item.quantity for item in instance.items.all())


def is_staff_member(instance: Any, user: Any, **kwargs: Any) -> Any:
    """
    Tell whether staff asks.
    """
    return user.is_staff


def reserve_stock(instance: Any, **kwargs: Any) -> None:
    """
    Take the items out of stock.
    """
    for item in instance.items.all():
        item.product.stock -= item.quantity
        item.product.save()


def send_approval_email(instance: Any, **kwargs: Any) -> None:
    """
    Remember that a mail would go out.
    """
    SENT.append(instance.pk)


class OrderProcess(Process):
    """
    The manual's process.
    """

    process_name = "process"
    transitions = [
        Transition(
            action_name="approve",
            sources=["draft"],
            target="approved",
            conditions=[has_stock],
            permissions=[is_staff_member],
            side_effects=[reserve_stock],
            callbacks=[send_approval_email],
        ),
        Transition(
            action_name="cancel",
            sources=["draft", "approved"],
            target="cancelled",
        ),
    ]
