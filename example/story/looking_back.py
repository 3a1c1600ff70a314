"""
Chapters that read what the moves left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from statistics import quantiles
from typing import TypeVar

from django.db import transaction

from django_logic.exceptions import InvalidTransition
from django_logic.models import StatusChange
from django_logic.timeline import Entry
from example.shop.models import Order, Payment
from example.story import clock
from example.story.cast import Cast
from example.story.stage import Stage

__all__ = ["one_week", "waiting_times"]

T = TypeVar("T")

#: How many hours each order of the past weeks sat in processing: most of them a morning, some over a weekend.
HOURS = [*range(1, 9)] * 4 + [12, 20, 24, 26, 30, 48, 60, 72]
STILL_OPEN = 3
FORGOTTEN_DAYS = 9


def one_week(stage: Stage, cast: Cast) -> None:
    """
    Let one order live through a week, and read its life.
    """
    stage.note("the calls of this chapter are real, their times are not: Django's clock is set to days of last week.")
    ada, monday = cast.ada, clock.last_monday()
    order = Order.objects.create(customer=ada)
    order.lines.create(item=cast.mug, quantity=1)
    on = partial(dated, stage)

    on(monday + timedelta(hours=9, minutes=12), lambda: order.process.place(user=ada, reason="checkout completed"))
    with clock.at(monday + timedelta(hours=9, minutes=13)):
        payment = Payment.objects.create(order=order, amount=order.total())
        payment.process.submit()
        payment.process.settle(received=payment.amount)
    started = monday + timedelta(hours=9, minutes=14)
    on(started, lambda: order.process.start_processing(reason="payment succeeded"))
    stage.say("The message that the payment succeeded is delivered twice:")
    on(started, lambda: order.process.start_processing(reason="payment succeeded"))
    on(
        monday + timedelta(days=1, hours=16, minutes=40),
        lambda: order.process.ship(actor="warehouse", reason="dispatched, tracking AB123"),
    )
    friday = monday + timedelta(days=4, hours=11, minutes=2)
    stage.line(f"\n  {label(friday)}")
    with clock.at(friday):
        stage.refused(lambda: order.process.cancel(user=ada, reason="too late"), InvalidTransition)

    stage.say("What happened to this order? Its timeline knows, refusals and duplicates included.")
    timeline = stage.run(lambda: order.process.timeline(), name="timeline")
    rows = [[label(entry.at), asked_move(entry), entry.kind, entry.actor, entry.reason] for entry in timeline]
    stage.table(["when", "move", "how it ended", "who", "why"], rows)
    stage.line("")
    kinds = [entry.kind for entry in timeline]
    stage.fact("every call is told once", kinds, ["moved", "moved", "duplicate", "moved", "refused"])
    moves = [(move.from_state, move.to_state) for move in order.process.history]
    expected = [("draft", "placed"), ("placed", "processing"), ("processing", "fulfilled")]
    stage.fact("history alone holds the moves, each with both states", moves, expected)


def dated(stage: Stage, moment: datetime, step: Callable[[], T]) -> T:
    """
    Run a step at a moment, and print it.
    """
    stage.line(f"\n  {label(moment)}")
    with clock.at(moment):
        return stage.run(step)


def asked_move(entry: Entry) -> str:
    """
    Write the move that was asked for; a duplicate asks for the state the object is in.
    """
    return f"{entry.from_state} → {entry.to_state}" if entry.to_state else f"already {entry.from_state}"


def label(moment: datetime) -> str:
    """
    Write a moment the way people speak of last week.
    """
    return f"{moment:%a %H:%M}"


def waiting_times(stage: Stage, cast: Cast) -> None:
    """
    Ask how long orders sit in processing.
    """
    stage.say(f"How long do orders sit in processing? {len(HOURS)} orders of the last weeks shall tell.")
    stage.note("each of them is moved by real calls, with Django's clock set to the times of its story.")
    monday = clock.last_monday()
    # One transaction for all of them: hundreds of commits would take a slow disk many seconds.
    with transaction.atomic():
        for number, hours in enumerate(HOURS):
            started = monday - timedelta(days=14) + timedelta(minutes=17 * number)
            order = past_order(cast, started)
            with clock.at(started + timedelta(hours=hours)):
                order.process.ship(actor="warehouse")
        waiting = [past_order(cast, monday - timedelta(days=FORGOTTEN_DAYS)) for _ in range(STILL_OPEN)]

    figures = stage.run(lambda: StatusChange.objects.time_in_state(Order, state="processing"), name="figures")
    stage.run(lambda: (str(figures.p50), str(figures.p95), figures.open))
    stage.say(
        "Half of the orders took no longer than the first figure, 95 of 100 no longer than the second; the third"
        " one counts those that are still there. All are computed in the database. For a terminal:"
    )
    stage.command("dl_report", "shop.Order", "--state", "processing")
    stage.line("")
    stays = finished_stays()
    stage.fact("every finished stay is counted", figures.count, len(stays))
    stage.fact("the longest one is known", figures.max, max(stays))
    twentieths = quantiles([stay.total_seconds() for stay in stays], n=20, method="inclusive")
    found = [in_hours(figures.p50), in_hours(figures.p95)]
    expected = [in_hours(timedelta(seconds=twentieths[index])) for index in (9, 18)]
    stage.fact("Python's own percentiles agree", found, expected)

    stage.say("And which ones were forgotten? Some entered more than a week ago and are there still.")
    stuck = stage.run(
        lambda: StatusChange.objects.stuck(Order, "processing", longer_than=timedelta(days=7)), name="stuck"
    )
    forgotten = {move.instance_id for move in stuck} & {str(order.pk) for order in waiting}
    stage.fact("the three that were never shipped are found", len(forgotten), STILL_OPEN)

    stage.say("At last: do columns, history and the database's constraints agree, after all of these chapters?")
    stage.command("dl_verify")


def past_order(cast: Cast, started: datetime) -> Order:
    """
    Bring an order into processing at a moment.
    """
    with clock.at(started - timedelta(minutes=10)):
        order = cast.place_and_pay()
    with clock.at(started):
        order.process.start_processing(reason="payment succeeded")
    return order


def finished_stays() -> list[timedelta]:
    """
    Compute in Python, from every history row, what the report computes in the database.
    """
    entered: dict[str, datetime] = {}
    stays = []
    for move in StatusChange.objects.filter(app_label="shop", model_name="order").order_by("instance_id", "sequence"):
        if move.from_state == "processing":
            stays.append(move.occurred_at - entered[move.instance_id])
        if move.to_state == "processing":
            entered[move.instance_id] = move.occurred_at
    return sorted(stays)


def in_hours(length: timedelta | None) -> str:
    """
    Write a length of time in hours.
    """
    return "unknown" if length is None else f"{length.total_seconds() / 3600:.1f} hours"
