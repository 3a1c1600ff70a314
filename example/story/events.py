"""
Chapters about events: what moves tell, and how it arrives although brokers, relays and messages fail.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from django_logic.outbox import metrics
from django_logic.outbox.models import DeliveryState, OutboxDelivery, OutboxMessage
from example.shop.broker import exchange
from example.shop.dispatch import printer
from example.shop.models import Order
from example.shop.process import money_arrived
from example.shop.subscribers import print_thanks, stamp_card
from example.story import crew
from example.story.cast import Cast
from example.story.stage import Stage

__all__ = ["killed_relay", "told_to_others", "unreadable_event"]

#: In the middle of a batch: each of four orders and payments has told one event, and two orders the next one.
SOME = 10


def told_to_others(stage: Stage, cast: Cast) -> None:
    """
    Show what moves tell, and deliver it to a broker that is away at first.
    """
    order = cast.the_order()
    stage.say(
        "Every move of these chapters has told an event already: a message, written in the transaction of the move."
        " This is what the order of chapter 2 has told."
    )
    topics = stage.run(lambda: topics_of(order))
    stage.fact("one event for each move", topics, ["order.placed", "order.processing", "order.fulfilled"])
    stage.say("Where the usual payload is not enough, event= on the transition names a function.")
    stage.source(money_arrived)
    payment = order.payments.get()
    stage.run(lambda: OutboxMessage.objects.get(topic="payment.received", key=payment.pk).payload)
    stage.say("What is rolled back has told nothing.")
    draft = Order.objects.create(customer=cast.ada)
    draft.lines.create(item=cast.mug, quantity=1)
    stage.source(place_and_think_again)
    stage.run(lambda: place_and_think_again(draft))
    stage.fact("no event of it", topics_of(draft), [])

    stage.say("Now the broker goes down, and only then a relay is started, and three more orders are made.")
    stage.run(lambda: exchange.go_down())
    with crew.relay(stage, "north"):
        stage.run(lambda: wait_for_relay_in_vain())
        orders = stage.run(lambda: [delivered_order(cast) for _ in range(3)], name="orders")
        stage.say("Everything waits, and no event has spent an attempt: it is not their fault.")
        stage.run(lambda: [(row.destination, row.pending, row.dead) for row in metrics.figures()])
        stage.fact("none has arrived", len(exchange.arrived()), 0)
        stage.fact("no attempt is spent", attempts_spent([order, *orders]), 0)
        stage.say("The shop's own subscribers are another destination, and did not wait for the broker.")
        stage.run(lambda: wait_for_delivery("subscribers"))
        stage.fact("every order has its stamp", [item.stamps.count() for item in orders], [1, 1, 1])
        stage.say("The broker is back. Once in a while the relay tries with a single event, and then sends the rest.")
        stage.run(lambda: exchange.come_up())
        stage.run(lambda: wait_for_delivery("broker"))
    tell_arrivals(stage, orders)


def killed_relay(stage: Stage, cast: Cast) -> None:
    """
    Kill a relay while it publishes a batch, and while a subscriber works.
    """
    stage.say(
        "Two functions of the shop hear of placed orders. The first one writes to our database, so it has an inbox."
    )
    stage.source(stamp_card)
    stage.source(print_thanks)
    stage.say(
        "Four orders are made while no relay runs. The broker will get slow in the middle of them, and the printer is"
        " jammed: a subscriber stops right after the stamp was committed."
    )
    orders = stage.run(lambda: [delivered_order(cast) for _ in range(4)], name="orders")
    stage.run(lambda: exchange.fill_up_after(SOME))
    stage.run(lambda: printer.get_stuck())
    with crew.relay(stage, "east"):
        jammed = stage.run(lambda: wait_for_card(orders), name="jammed")
        crew.wait_until(lambda: exchange.is_full() or None, "half a batch at the broker")
        stage.say("The relay is in the middle of a batch. Nothing says yet what of it has arrived. We pull the plug.")
        stage.fact("of the twelve events of the orders half have arrived", len(arrived_of(orders)), 6)
        stage.run(lambda: os.kill(exchange.arrived()[-1]["pid"], signal.SIGKILL))
    exchange.get_going()
    printer.get_going()
    stage.say(
        "It died without a word. What it had is leased for a moment more. Then whoever comes goes on, here a worker"
        " that keeps a relay beside its children."
    )
    with crew.worker(stage, "south", "--relay"):
        stage.run(lambda: wait_for_delivery("broker"))
        stage.run(lambda: wait_for_delivery("subscribers"))
    tell_arrivals(stage, orders)
    stage.fact(
        "some came twice: at least once is the promise", len(arrived_of(orders)) > messages_of(*orders).count(), True
    )
    stage.fact("the event at the printer was delivered twice", len(printer.asked_by(jammed)) > 1, True)
    stage.fact("its inbox took it once: one stamp for each order", [item.stamps.count() for item in orders], [1] * 4)


def unreadable_event(stage: Stage, cast: Cast) -> None:
    """
    Let an event be refused for good, and put it back.
    """
    ada = cast.ada
    stage.say("This broker takes no message of more than 2,000 bytes. One customer has a lot to say.")
    talkative, other = new_order(cast), new_order(cast)
    with crew.relay(stage, "west"):
        stage.run(lambda: talkative.process.place(user=ada, reason="Please, " * 300))
        stage.run(lambda: talkative.process.cancel(user=ada, reason="never mind"))
        stage.run(lambda: other.process.place(user=ada, reason="checkout"))
        stage.run(lambda: wait_for_delivery("broker", other))
        stage.run(lambda: wait_for_dead(talkative).error)
        stage.say("The next event of this order waits behind it, since it may depend on it. Other orders go on.")
        stage.fact("nothing of this order has arrived", len(arrived_of([talkative])), 0)
        stage.fact("the other order's event has", len(arrived_of([other])) > 0, True)
        stage.say("Somebody allows the broker larger messages, and puts the dead event back.")
        stage.run(lambda: exchange.allow(10_000))
        stage.command("dl_relay", "--replay", "--key", str(talkative.pk))
        stage.run(lambda: wait_for_delivery("broker", talkative))
    tell_arrivals(stage, [talkative, other])
    arrived = list(dict.fromkeys(row["topic"] for row in arrived_of([talkative])))
    stage.fact("in the order of the moves", arrived, ["order.placed", "order.cancelled"])


def place_and_think_again(order: Order) -> None:
    """
    Move an order in a transaction that is rolled back.
    """
    with transaction.atomic():
        order.process.place(user=order.customer)
        transaction.set_rollback(True)


def new_order(cast: Cast) -> Order:
    """
    Fill a basket.
    """
    order = Order.objects.create(customer=cast.ada)
    order.lines.create(item=cast.mug, quantity=1)
    return order


def delivered_order(cast: Cast) -> Order:
    """
    Bring an order from the basket to the doorstep, without a word.
    """
    order = cast.place_and_pay()
    order.process.start_processing(reason="payment succeeded")
    order.process.ship(actor="warehouse")
    return order


def messages_of(*orders: Order) -> QuerySet[OutboxMessage]:
    """
    Return what orders have told.
    """
    return OutboxMessage.objects.filter(aggregate="shop.order", key__in=[str(order.pk) for order in orders])


def topics_of(order: Order) -> list[str]:
    """
    Return the topics of an order's events in their order.
    """
    return list(messages_of(order).order_by("sequence").values_list("topic", flat=True))


def arrived_of(orders: Sequence[Order]) -> list[dict[str, Any]]:
    """
    Return what arrived at the broker from orders, in its order and as often as it did.
    """
    keys = {str(order.pk) for order in orders}
    return [row for row in exchange.arrived() if row["key"] in keys and row["topic"].startswith("order.")]


def attempts_spent(orders: Sequence[Order]) -> int:
    """
    Count the events that wait for the broker and have spent an attempt.
    """
    waiting = OutboxDelivery.objects.filter(message__in=messages_of(*orders), destination="broker")
    return waiting.filter(state=DeliveryState.PENDING, attempts__gt=0).count()


def wait_for_relay_in_vain() -> None:
    """
    Wait until a relay has found the broker down.
    """
    crew.wait_until(lambda: exchange.was_asked_in_vain() or None, "a relay at the broker")


def wait_for_delivery(destination: str, *orders: Order) -> None:
    """
    Wait until nothing of these orders, or of all, waits for a destination.
    """
    dead = OutboxDelivery.objects.filter(state=DeliveryState.DEAD)
    # On a database that is used again, another story may have been stopped while an event was dead.
    rows = OutboxDelivery.objects.filter(destination=destination, is_open=True).exclude(key__in=dead.values("key"))
    if orders:
        rows = rows.filter(message__in=messages_of(*orders))
    crew.wait_until(lambda: None if rows.exists() else True, f"all events at {destination!r}")


def wait_for_card(orders: Sequence[Order]) -> UUID:
    """
    Wait until a subscriber stands at the printer for one of these orders; return the id of its event.
    """
    ids = list(messages_of(*orders).values_list("id", flat=True))
    return crew.wait_until(lambda: next((ident for ident in ids if printer.asked_by(ident)), None), "a card")


def wait_for_dead(order: Order) -> OutboxDelivery:
    """
    Wait until an event of an order is dead.
    """
    dead = OutboxDelivery.objects.filter(message__in=messages_of(order), state=DeliveryState.DEAD)
    return crew.wait_until(lambda: dead.first(), "a dead event")


def tell_arrivals(stage: Stage, orders: Sequence[Order]) -> None:
    """
    Compare what orders told with what arrived.
    """
    rows, lost, late = [], 0, 0
    for order in orders:
        told, arrived = topics_of(order), arrived_of([order])
        seen = list(dict.fromkeys(row["sequence"] for row in arrived))
        overtaken = sum(number != place for place, number in enumerate(seen, start=1))
        rows.append([f"order {order.pk}", str(len(told)), str(len(arrived)), str(len(seen)), str(overtaken)])
        lost, late = lost + len(told) - len(seen), late + overtaken
    stage.table(["key", "told", "arrived", "of these different", "out of order"], rows)
    stage.line("")
    stage.fact("nothing is lost", lost, 0)
    stage.fact("nothing is out of order", late, 0)
