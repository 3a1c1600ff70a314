"""
Processes of the test models.
"""

from __future__ import annotations

from typing import Any

from django_logic import Process, Transition
from tests.app.models import Grade


def has_stock(instance: Any, **kwargs: Any) -> bool:
    """
    Tell whether every item can be taken.
    """
    return all(item.product.stock >= item.quantity for item in instance.items.all())


def is_staff_member(instance: Any, user: Any, **kwargs: Any) -> bool:
    """
    Tell whether staff asks.
    """
    return bool(user.is_staff)


def reserve_stock(instance: Any, **kwargs: Any) -> None:
    """
    Take the items out of stock.
    """
    for item in instance.items.all():
        item.product.stock -= item.quantity
        item.product.save()


SENT: list[Any] = []


def send_approval_email(instance: Any, **kwargs: Any) -> None:
    """
    Remember that a mail would go out.
    """
    SENT.append(instance.pk)


class OrderProcess(Process):
    """
    The order of the README.
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
        Transition(action_name="cancel", sources=["draft", "approved"], target="cancelled"),
    ]


class ParcelProcess(Process):
    """
    The parcel's own machine.
    """

    process_name = "parcel"
    transitions = [Transition("pack", sources=["new"], target="packed")]


class PaymentProcess(Process):
    """
    The parcel's payment.
    """

    process_name = "payment"
    transitions = [
        Transition("pay", sources=["new"], target="paid"),
        Transition("refund", sources=["paid"], target="refunded"),
    ]


class DocumentProcess(Process):
    """
    Three states in a row, and a way back.
    """

    transitions = [
        Transition("publish", sources=["new"], target="published"),
        Transition("archive", sources=["published"], target="archived"),
        Transition("reopen", sources=["archived", "published"], target="new"),
        Transition("touch", sources=["new"], target="new"),
    ]


class LevelProcess(Process):
    """
    Integer states.
    """

    transitions = [
        Transition("promote", sources=[Grade.NONE], target=Grade.BRONZE),
        Transition("reset", sources="*", target=Grade.NONE),
    ]
