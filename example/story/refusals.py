"""
Chapters about what must not happen: moves that don't exist, writes past the process, work that fails half way.
"""

from __future__ import annotations

from decimal import Decimal

from django.db import IntegrityError, connection

from django_logic.exceptions import InvalidTransition
from example.shop.models import LedgerLine, Order, Payment
from example.shop.process import WrongAmount
from example.story.cast import Cast
from example.story.stage import Stage

__all__ = ["failed_work", "past_the_process", "too_late"]


def too_late(stage: Stage, cast: Cast) -> None:
    """
    Try to cancel what is fulfilled.
    """
    order, ada = cast.the_order(), cast.ada
    stage.say("Ada wants to cancel the order that was shipped. There is no such move: fulfilled is an end.")
    refusal = stage.refused(lambda: order.process.cancel(user=ada), InvalidTransition)
    stage.say("The exception carries what a page, an API or a log needs:")
    stage.fact("a code for machines", stage.run(lambda: str(refusal.reason)), "source_state")
    stage.run(lambda: refusal.user_message)
    stage.fact("a status for HTTP: conflict", stage.run(lambda: refusal.http_status), 409)
    stage.fact("what is possible instead: nothing", stage.run(lambda: refusal.available_actions), [])
    stage.say("Ask before you show a button. The same judge answers, so a list and a call never disagree.")
    codes = stage.run(lambda: [str(reason.code) for reason in order.process.why_not("cancel", user=ada)])
    stage.fact("why_not gives the same reason", codes, ["source_state"])
    stage.say("A move can also be named by where it leads. It is the same move, and so is the answer.")
    by_target = stage.refused(lambda: order.process.transition_to("draft", user=ada), InvalidTransition)
    stage.fact("fulfilled → draft is refused too", by_target.http_status, 409)
    order.refresh_from_db()
    stage.fact("the order is as it was", order.status, "fulfilled")


def past_the_process(stage: Stage, cast: Cast) -> None:
    """
    Try to write the column without the process.
    """
    order, ada = cast.the_order(), cast.ada
    stage.say(
        "Python rules bind only those who ask. A colleague in a hurry writes the column directly. The table of moves"
        " is in the database too, as a constraint that came with a migration, and the database says no."
    )
    if connection.vendor == "sqlite":
        stage.note("SQLite can only name the constraint; PostgreSQL names the object and both states.")
    with connection.cursor() as cursor:
        update = stage.refused(
            lambda: Order.objects.filter(pk=order.pk).update(status="draft"),  # dl: allow the database refuses it
            IntegrityError,
        )
        stage.fact("the message names the constraint or the move", names_the_rule(update, "draft"), True)
        stage.say("Raw SQL, from here or from any other program:")
        raw = stage.refused(
            lambda: cursor.execute("UPDATE shop_order SET status = 'cancelled' WHERE id = %s", [order.pk]),
            IntegrityError,
        )
        stage.fact("raw SQL is refused too", names_the_rule(raw, "cancelled"), True)
    stage.say("A state that does not exist, and an order that is born finished:")
    stage.refused(
        lambda: Order.objects.filter(pk=order.pk).update(status="shiped"),  # dl: allow the database refuses it
        IntegrityError,
    )
    stage.refused(lambda: Order.objects.create(customer=ada, status="fulfilled"), IntegrityError)
    order.refresh_from_db()
    stage.fact("the order is as it was", order.status, "fulfilled")
    last = order.process.history.last()
    stage.fact("and history agrees with it", last.to_state if last else None, "fulfilled")


def names_the_rule(error: IntegrityError, target: str) -> bool:
    """
    Tell whether a message says which rule was broken.
    """
    return "shop_order_moves" in str(error) or ("fulfilled" in str(error) and target in str(error))


def failed_work(stage: Stage, cast: Cast) -> None:
    """
    Let a payment fail after its money was booked.
    """
    order = Order.objects.create(customer=cast.ada)
    order.lines.create(item=cast.mug, quantity=2)
    payment = Payment.objects.create(order=order, amount=order.total())
    payment.process.submit()
    stage.say(
        "A payment of 25.00 is on its way, but 19.90 arrive. Settling runs two side effects: book_money writes a line"
        " into the ledger, then check_amount looks at the sum and raises."
    )
    error = stage.refused(lambda: payment.process.settle(received=Decimal("19.90")), WrongAmount)
    stage.fact("the caller gets the original error", type(error).__name__, "WrongAmount")
    lines = stage.run(lambda: LedgerLine.objects.filter(payment=payment).count())
    stage.fact("the line that was written is undone", lines, 0)
    stage.fact("failed_state= says where the payment goes", stage.run(lambda: payment.status), "failed")
    moves = stage.run(lambda: list(payment.process.history.values_list("from_state", "to_state")))
    stage.fact("history has that move", moves[-1], ("processing", "failed"))
