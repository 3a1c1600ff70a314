"""
Chapters about two who want the same thing at the same time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from django.core import mail
from django.db import connection

from django_logic.exceptions import InvalidTransition
from example.shop.models import Order
from example.shop.process import release_at_warehouse, reserve_at_warehouse
from example.shop.warehouse import warehouse
from example.story.cast import Cast
from example.story.stage import Stage
from example.story.together import apart, at_once, slow_answer

__all__ = ["lost_reservation", "two_workers"]


def ship_it(order_id: int, start: Barrier) -> bool:
    """
    Work as one of several workers do.
    """
    order = Order.objects.get(pk=order_id)  # a copy and a database connection of its own
    start.wait()  # all workers are let go together
    return order.process.ship(actor="warehouse")


def two_workers(stage: Stage, cast: Cast) -> None:
    """
    Let two workers ship one order.
    """
    order = cast.the_order()
    on_hand, mails = cast.shelf().on_hand, len(mail.outbox) if hasattr(mail, "outbox") else 0
    stage.say("Two workers take the same order from a queue. Both see it in processing, both want to ship it, now.")
    stage.source(ship_it)
    stage.say(
        "The first one locks and reads the row in one statement. The second one waits for it, reads what the first one"
        " wrote, and finds its work done."
    )
    if connection.vendor == "sqlite":
        stage.note("SQLite has no row locks: the second worker waits for the whole file instead. It ends the same.")
    results = stage.run(lambda: sorted(at_once(ship_it, order.pk, workers=2)))
    stage.fact("one worker shipped it, the other one was told so", results, [False, True])
    stage.fact("one parcel was packed", stage.run(lambda: order.parcels.count()), 1)
    stage.fact("two mugs left the shelf, not four", on_hand - cast.shelf().on_hand, 2)
    stage.fact("one mail went out, after the commit", stage.run(lambda: len(mail.outbox)) - mails, 1)
    order.refresh_from_db()
    stage.fact("the order is fulfilled", order.status, "fulfilled")


def lost_reservation(stage: Stage, cast: Cast) -> None:
    """
    Reserve goods for an order that is cancelled while the warehouse answers.
    """
    ada = cast.ada
    stage.say("To reserve goods, the shop asks the warehouse: another company, far away and slow.")
    stage.source(reserve_at_warehouse)
    stage.say(
        "Such work is declared as prepare=. It runs before the order is locked, so nobody waits for the warehouse."
        " The rest follows in one transaction: the new state, and the shelf that says what is promised."
    )
    before = cast.shelf().reserved
    first = stage.run(lambda: cast.place_and_pay(), name="first")
    stage.run(lambda: first.process.start_processing(reason="payment succeeded"))
    stage.fact("the warehouse keeps the goods aside", first.reservation in warehouse.reservations, True)
    stage.fact("two mugs are promised on the shelf", cast.shelf().reserved - before, 2)

    stage.say("The next order goes wrong. A worker, in a thread of his own, waits for the warehouse. Ada cancels.")
    held, promised = set(warehouse.reservations), cast.shelf().reserved
    order = stage.run(lambda: cast.place_and_pay(), name="order")
    theirs = stage.run(lambda: Order.objects.get(pk=order.pk), name="theirs")
    with ThreadPoolExecutor(1) as pool, slow_answer(warehouse) as call:
        worker = stage.run(lambda: apart(pool, theirs.process.start_processing), name="worker")
        stage.run(lambda: call.wait_until_asked())
        stage.fact("the warehouse keeps goods aside", len(warehouse.reservations - held), 1)
        cancelled = stage.run(lambda: order.process.cancel(user=ada, reason="changed my mind"))
        stage.fact("Ada did not have to wait", cancelled, True)
        stage.run(lambda: call.answered.set())
        refusal = stage.refused(lambda: worker.result(), InvalidTransition)
    stage.fact("the worker's move was refused", (refusal.current_state, refusal.target), ("cancelled", "processing"))
    stage.say(
        "Nothing of ours was written. But the warehouse is another company, and no rollback reaches it. So the same"
        " transition declares failure_callbacks=, which run when what was prepared is not wanted any more:"
    )
    stage.source(release_at_warehouse)
    stage.line("")
    stage.fact("the warehouse released the goods", warehouse.reservations, held)
    stage.fact("no mug is promised to a cancelled order", cast.shelf().reserved, promised)
