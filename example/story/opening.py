"""
The first chapters: the two machines, and an order placed and paid.
"""

from __future__ import annotations

from decimal import Decimal

from example.shop.models import ORDER_MOVES, Order, Payment
from example.story.cast import Cast
from example.story.stage import Stage

__all__ = ["one_order", "two_machines"]


def two_machines(stage: Stage, cast: Cast) -> None:
    """
    Draw the order and the payment.
    """
    stage.say("A shop has orders and payments. Each has a status, and few moves between them are allowed.")
    stage.command("dl_graph", "shop.Order", "--format", "table")
    stage.say("Look at what is missing: nothing leads out of fulfilled, nothing back to draft. That is the point.")
    stage.command("dl_graph", "shop.Payment", "--format", "table")
    stage.say("The models hold the same moves as data, for the database. A system check compares the two.")
    declared = {(source, target) for source, targets in ORDER_MOVES.items() for target in targets}
    stage.fact("process and table agree on the order's moves", Order().process.tree.edges, declared)
    stage.say("For a picture, paste this into any Markdown page that draws Mermaid:")
    stage.command("dl_graph", "shop.Order")


def one_order(stage: Stage, cast: Cast) -> None:
    """
    Place an order, click twice, pay, and start the work.
    """
    ada, mug = cast.ada, cast.mug
    stage.say("Ada puts two mugs into her basket. An order is born as a draft.")
    order = stage.run(lambda: Order.objects.create(customer=ada), name="order")
    stage.run(lambda: order.lines.create(item=mug, quantity=2), name="line")
    cast.order = order

    stage.say("She places it. True says: this call moved the order.")
    stage.fact("the call moved the order", stage.run(lambda: order.process.place(user=ada, reason="checkout")), True)

    stage.say(
        "Her mouse clicks twice, so a second request arrives with its own copy of the order. False says: the order is"
        " there already, nothing was done. That is no error, because what Ada wants is the case."
    )
    again = stage.run(lambda: Order.objects.get(pk=order.pk), name="again")
    stage.fact("the second click moved nothing", stage.run(lambda: again.process.place(user=ada)), False)
    stage.fact("history has one row", stage.run(lambda: order.process.history.count()), 1)

    stage.say("May the shop start to work on it? The process knows why not.")
    reasons = stage.run(lambda: [str(reason.message) for reason in order.process.why_not("start_processing")])
    stage.fact("the reason is the missing payment", reasons, ["The order is not paid yet."])

    stage.say("So Ada pays. The payment is a machine of its own.")
    payment = stage.run(lambda: Payment.objects.create(order=order, amount=order.total()), name="payment")
    stage.run(lambda: payment.process.submit())
    stage.run(lambda: payment.process.settle(received=Decimal("25.00")))
    stage.fact("the payment succeeded", payment.status, "succeeded")

    started = stage.run(lambda: order.process.start_processing(reason="payment succeeded"))
    stage.fact("now the work starts", (started, order.status), (True, "processing"))
