"""
How orders and payments move: every hook, then the two processes that say when it runs.

Remote work goes into ``prepare`` (before the lock), what must agree with the state into ``side_effects`` (in its
transaction), what can't be taken back into ``callbacks`` (after the commit), and amends into ``failure_callbacks``.
``dispatch`` is background work: its hooks run on a worker, and again when an attempt fails. Every move tells an event;
``event=`` says what, where the usual one is not enough.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.core.mail import send_mail
from django.db.models import F
from django.utils.translation import gettext_lazy as _

from django_logic import Process, Transition, refusal_message
from django_logic.background import BackgroundTransition, Backoff
from django_logic.outbox import payload
from example.shop.dispatch import NoSuchAddress, courier, printer
from example.shop.models import LedgerLine, Order, OrderStatus, Parcel, Payment, PaymentStatus, StockItem
from example.shop.warehouse import warehouse

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractUser


class OutOfStock(Exception):
    """
    Say that the shelf does not hold enough.
    """


class WrongAmount(Exception):
    """
    Say that another sum arrived than was asked for.
    """


@refusal_message(_("This is somebody else's order."))
def is_own_order(order: Order, user: AbstractUser, **kwargs: Any) -> bool:
    """
    Allow customers to move their own orders, and staff to move any.
    """
    return user.is_staff or order.customer_id == user.pk


@refusal_message(_("The order is empty."))
def has_lines(order: Order, **kwargs: Any) -> bool:
    """
    Tell whether there is something to send.
    """
    return order.lines.exists()


@refusal_message(_("The order is not paid yet."))
def is_paid(order: Order, **kwargs: Any) -> bool:
    """
    Tell whether a payment of this order succeeded.
    """
    return order.payments.filter(status=PaymentStatus.SUCCEEDED).exists()


def reserve_at_warehouse(order: Order, context: dict[str, Any], **kwargs: Any) -> None:
    """
    Ask the warehouse to keep the goods aside. It takes its time, so nothing of ours is locked meanwhile.
    """
    context["reservation"] = warehouse.reserve()


def release_at_warehouse(order: Order, context: dict[str, Any], **kwargs: Any) -> None:
    """
    Make amends: the order did not move, so the goods that were kept aside for it go back.
    """
    if "reservation" in context:
        warehouse.release(context["reservation"])


def book_reservation(order: Order, context: dict[str, Any], **kwargs: Any) -> None:
    """
    Promise the goods to this order, in the same transaction as its new state.
    """
    # Everybody takes the shelves in one order, so that two orders can't wait for each other in a circle.
    for line in order.lines.order_by("item_id"):
        shelf = StockItem.objects.filter(pk=line.item_id, on_hand__gte=F("reserved") + line.quantity)
        if not shelf.update(reserved=F("reserved") + line.quantity):
            raise OutOfStock(f"Item {line.item_id}: fewer than {line.quantity} left.")
    order.reservation = context["reservation"]
    order.save(update_fields=["reservation"])


def give_back_stock(order: Order, **kwargs: Any) -> None:
    """
    Put what was promised back on the shelf.
    """
    if order.reservation:
        for line in order.lines.order_by("item_id"):
            StockItem.objects.filter(pk=line.item_id).update(reserved=F("reserved") - line.quantity)


def cancel_at_warehouse(order: Order, **kwargs: Any) -> None:
    """
    Tell the warehouse, once the order is cancelled for good.
    """
    warehouse.release(order.reservation)


def take_from_stock(order: Order, **kwargs: Any) -> None:
    """
    Take the promised goods off the shelf.
    """
    for line in order.lines.order_by("item_id"):
        StockItem.objects.filter(pk=line.item_id).update(
            on_hand=F("on_hand") - line.quantity, reserved=F("reserved") - line.quantity
        )


def pack_parcel(order: Order, context: dict[str, Any], **kwargs: Any) -> None:
    """
    Pack the one parcel of this order.
    """
    Parcel.objects.create(order=order, tracking=context.get("tracking", ""))


def book_courier(order: Order, address: str, transition_id: UUID, context: dict[str, Any], **kwargs: Any) -> None:
    """
    Book the courier. Each attempt gives the same key, so that a second one books nothing twice.
    """
    if address == "the moon":
        raise NoSuchAddress(address)
    context["tracking"] = courier.do(transition_id)


def print_label(order: Order, transition_id: UUID, **kwargs: Any) -> None:
    """
    Print the label that goes onto the parcel, by the same key.
    """
    printer.do(transition_id)


def tell_office(order: Order, exception: BaseException, **kwargs: Any) -> None:
    """
    Ask for help: no attempt is left, or none would help.
    """
    send_mail("An order is on hold", f"Order {order.pk}: {exception}", "shop@example.com", ["office@example.com"])


def tell_customer(order: Order, **kwargs: Any) -> None:
    """
    Send a mail. It can't be unsent, so it goes out after the commit.
    """
    send_mail("Your order is on its way", f"Order {order.pk}", "shop@example.com", [order.customer.email])


def book_money(payment: Payment, received: Decimal, **kwargs: Any) -> None:
    """
    Write down what arrived. ``received`` is a keyword of the call.
    """
    LedgerLine.objects.create(payment=payment, amount=received)


def check_amount(payment: Payment, received: Decimal, **kwargs: Any) -> None:
    """
    Fail the payment when the sum is not the one that was asked for.
    """
    if received != payment.amount:
        raise WrongAmount(f"{payment.amount} was asked for, {received} arrived")


@payload(topic="payment.received", schema="https://schemas.example.com/payment-received/1")
def money_arrived(payment: Payment, payload: dict[str, Any], received: Decimal, **kwargs: Any) -> dict[str, Any]:
    """
    Tell others what they want to know: ids and sums, and nothing about the person.
    """
    return {**payload, "order_id": payment.order_id, "received": str(received)}


class OrderProcess(Process):
    """
    Move an order from the basket to the doorstep.
    """

    transitions = [
        Transition(
            "place",
            sources=[OrderStatus.DRAFT],
            target=OrderStatus.PLACED,
            permissions=[is_own_order],
            conditions=[has_lines],
        ),
        Transition(
            "start_processing",
            sources=[OrderStatus.PLACED],
            target=OrderStatus.PROCESSING,
            conditions=[is_paid],
            prepare=[reserve_at_warehouse],
            side_effects=[book_reservation],
            failure_callbacks=[release_at_warehouse],
        ),
        Transition(
            "ship",
            sources=[OrderStatus.PROCESSING],
            target=OrderStatus.FULFILLED,
            side_effects=[take_from_stock, pack_parcel],
            callbacks=[tell_customer],
        ),
        BackgroundTransition(
            "dispatch",
            sources=[OrderStatus.PROCESSING, OrderStatus.ON_HOLD],
            target=OrderStatus.FULFILLED,
            in_progress_state=OrderStatus.DISPATCHING,
            failed_state=OrderStatus.ON_HOLD,
            queue="parcels",
            timeout=60,
            prepare=[book_courier],
            side_effects=[take_from_stock, pack_parcel, print_label],
            callbacks=[tell_customer],
            failure_callbacks=[tell_office],
            # The story is in a hurry; 30 seconds are a good first pause.
            retry=Backoff(first=0.5, limit=60),
            no_retry_on=[NoSuchAddress],
        ),
        Transition(
            "cancel",
            sources=[OrderStatus.DRAFT, OrderStatus.PLACED, OrderStatus.PROCESSING, OrderStatus.ON_HOLD],
            target=OrderStatus.CANCELLED,
            permissions=[is_own_order],
            side_effects=[give_back_stock],
            callbacks=[cancel_at_warehouse],
        ),
    ]


class PaymentProcess(Process):
    """
    Move a payment from the request to the money, or to its failure.
    """

    transitions = [
        Transition("submit", sources=[PaymentStatus.PENDING], target=PaymentStatus.PROCESSING),
        Transition(
            "settle",
            sources=[PaymentStatus.PROCESSING],
            target=PaymentStatus.SUCCEEDED,
            side_effects=[book_money, check_amount],
            failed_state=PaymentStatus.FAILED,
            event=money_arrived,
        ),
        Transition("decline", sources=[PaymentStatus.PROCESSING], target=PaymentStatus.FAILED),
    ]
