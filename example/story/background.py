"""
Chapters about work that a worker does: others fail now and then, a worker is killed, and the order arrives once.
"""

from __future__ import annotations

from django.db import connection

from django_logic.exceptions import AlreadyInProgress, TransitionTemporarilyUnavailable
from example.shop.dispatch import OutsideMachine, courier, printer
from example.shop.models import Order
from example.shop.process import book_courier
from example.story import crew
from example.story.cast import Cast
from example.story.stage import Stage

__all__ = ["killed_worker", "silent_courier"]


def ready_to_send(cast: Cast) -> Order:
    """
    Bring an order as far as processing, without a word.
    """
    order = cast.place_and_pay()
    order.process.start_processing(reason="payment succeeded")
    return order


def silent_courier(stage: Stage, cast: Cast) -> None:
    """
    Dispatch orders through a courier and a printer that do not always answer.
    """
    ada, on_hand = cast.ada, cast.shelf().on_hand
    stage.say(
        "To send an order, a courier has to be booked and a label printed: other people's machines, slow and moody."
        " Nobody wants to wait for them in a web page, so dispatch is a BackgroundTransition. The call saves a row and"
        " the busy state, and returns."
    )
    order = stage.run(lambda: ready_to_send(cast), name="order")
    stage.fact(
        "the call returned", stage.run(lambda: order.process.dispatch(address="Hill Road 1", reason="packed")), True
    )
    stage.fact("the order is busy", stage.run(lambda: order.status), "dispatching")
    stage.say("Until the row has ended, everybody else is told so at once. Nobody waits in front of a lock.")
    stage.refused(lambda: order.process.cancel(user=ada), TransitionTemporarilyUnavailable)
    stage.refused(lambda: order.process.dispatch(address="Hill Road 1"), AlreadyInProgress)
    stage.say("Why does it not move? The rows know, and say what to type next.")
    stage.command("dl_transitions")

    stage.say("So we start a worker. Today both the courier and the printer will not answer at first.")
    stage.source(book_courier)
    stage.run(lambda: courier.make_trouble(times=1))
    stage.run(lambda: printer.make_trouble(times=1))
    if connection.vendor == "sqlite":
        stage.note("SQLite has no row locks: a worker on it has one child, and is for development.")
    with crew.worker(stage, "north"):
        stage.run(lambda: crew.wait_for(order, "fulfilled"))
        row = stage.run(lambda: crew.newest_row(order), name="row")
        stage.fact("two attempts failed, the third did it", (row.attempts_started, row.errors_count), (3, 2))
        stage.run(lambda: row.last_error_message)
        stage.fact("the courier was asked three times, and has one booking", counts(courier, order), (3, 1))
        stage.fact("one label was printed", counts(printer, order), (2, 1))
        stage.fact("one parcel was packed", order.parcels.count(), 1)
        stage.fact("two mugs left the shelf", on_hand - cast.shelf().on_hand, 2)
        moves = list(order.process.history.values_list("from_state", "to_state"))[-2:]
        stage.fact("history has two moves", moves, [("processing", "dispatching"), ("dispatching", "fulfilled")])

        stage.say("Some things no second try can mend. The declaration lists NoSuchAddress in no_retry_on=:")
        lost = stage.run(lambda: ready_to_send(cast), name="lost")
        stage.run(lambda: lost.process.dispatch(address="the moon"))
        stage.run(lambda: crew.wait_for(lost, "on_hold"))
        failed = crew.newest_row(lost)
        stage.fact("one attempt, then a person has to look", (failed.outcome, failed.attempts_started), ("failed", 1))
        stage.fact("no parcel, no booking", (lost.parcels.count(), counts(courier, lost)), (0, (0, 0)))


def killed_worker(stage: Stage, cast: Cast) -> None:
    """
    Kill a worker in the middle of an attempt, and start another one.
    """
    on_hand = cast.shelf().on_hand
    stage.say("Now pull the plug. The printer is jammed, so that a worker stops in the middle of an order.")
    order = stage.run(lambda: ready_to_send(cast), name="order")
    stage.run(lambda: printer.get_stuck())
    with crew.worker(stage, "south") as unlucky:
        unlucky.pid()
        stage.run(lambda: order.process.dispatch(address="Hill Road 1", reason="packed"))
        row = crew.newest_row(order)
        crew.wait_until(lambda: printer.asked_by(row.transition_id) or None, "a worker at the printer")
        stage.say("The worker has taken the mugs off the shelf and packed the parcel, and waits for the label.")
        stage.command("dl_transitions")
        stage.run(lambda: unlucky.kill(order))
    printer.get_going()
    stage.say(
        "It is dead, and so is the child that held the row. What it wrote was in one transaction, and never committed:"
    )
    stage.fact("no parcel is packed", stage.run(lambda: order.parcels.count()), 0)
    stage.fact("all mugs are on the shelf", on_hand - cast.shelf().on_hand, 0)
    order.refresh_from_db()
    stage.fact("the order is still busy: nobody forgot it", order.status, "dispatching")

    stage.say(
        "Another worker comes. A row is kept for a while after a claim, in case its worker lives; we are in a hurry and"
        " say that it does not."
    )
    with crew.worker(stage, "east"):
        stage.command("dl_transitions", "--send", str(row.pk))
        stage.run(lambda: crew.wait_for(order, "fulfilled"))
    row = stage.run(lambda: crew.newest_row(order), name="row")
    stage.fact("the attempt that died was counted", (row.outcome, row.attempts_started), ("succeeded", 2))
    stage.run(lambda: row.last_error_message)
    stage.fact("the order arrived, with one parcel", order.parcels.count(), 1)
    stage.fact("two mugs left the shelf, not four", on_hand - cast.shelf().on_hand, 2)
    stage.fact("the courier was asked twice, and has one booking", counts(courier, order), (2, 1))
    told = order_rows(order, "callback")
    stage.fact("the customer was told once", told, ["succeeded"])


def counts(machine: OutsideMachine, order: Order) -> tuple[int, int]:
    """
    Return how often a machine was asked for an order, and how many jobs it did for it.
    """
    key = crew.newest_row(order).transition_id
    asked = len(machine.asked_by(key))
    return asked, int(machine.has_done(key))


def order_rows(order: Order, kind: str) -> list[str]:
    """
    List how the rows of a kind ended.
    """
    rows = crew.rows_of(order).filter(kind=kind)
    return list(rows.values_list("outcome", flat=True))
