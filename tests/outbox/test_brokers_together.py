"""
Prove that destinations are each other's strangers, that callers wait for none, and that a consumer acts once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import pytest

from django_logic import Transition, extension
from django_logic.outbox import inbox
from django_logic.outbox.events import rows_of
from django_logic.outbox.models import DeliveryState, InboxEntry, OutboxDelivery, OutboxMessage
from django_logic.outbox.relay.wake import wake
from tests.app.hooked import fresh, hooked
from tests.app.models import Product, Ticket
from tests.outbox.brokers import BROKERS, MODULE, RabbitQueue, RedisStream, held, ids, seen
from tests.outbox.relays import OFTEN, ask, deliveries, is_all_sent, relay, tickets
from tests.outbox.seen import overtaking, sights
from tests.outbox.servers import HOST, LARGEST_MESSAGE, SHARED_SERVERS, blackhole
from tests.worker.gates import Gate
from tests.worker.looks import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("sights_are_kept")]
pytest_plugins = [SHARED_SERVERS, BROKERS]

LOCAL = {"BACKEND": f"{MODULE}.local.Subscribers"}
PENDING, SENT, DEAD = DeliveryState.PENDING, DeliveryState.SENT, DeliveryState.DEAD


def states(destination: str, ticket: Ticket) -> list[str]:
    """
    Return how far each event of an object is on its way to one destination.
    """
    return [row.state for row in deliveries(ticket, destination=destination)]


def waiting() -> Counter[str]:
    """
    Count what has not been delivered, by destination.
    """
    return Counter(OutboxDelivery.objects.exclude(state=SENT).values_list("destination", flat=True))


@contextmanager
def without_events() -> Iterator[None]:
    """
    Let moves write no events within the block, as in a project without the app.
    """
    extension.unregister(rows_of)
    try:
        yield
    finally:
        extension.register_contributor(rows_of, after_write=wake)


def seconds(ticket: Ticket) -> list[float]:
    """
    Return how long each of twenty moves of an object has taken.
    """
    found = []
    for _count in range(20):
        began = time.monotonic()
        ask(ticket, "on")
        found.append(time.monotonic() - began)
    return found


def test_call_returns_at_once_while_every_broker_is_away(settings: Any) -> None:
    """
    No broker lets anybody in and no relay runs: a move with events takes as long as one without, and its rows wait.

    Source: celery/celery#4296.
    """
    (ticket,) = tickets(1)

    with blackhole() as port:
        address = f"{HOST}:{port}"
        settings.DJANGO_LOGIC = {
            "OUTBOX_PUBLISHERS": {
                "rabbit": {"BACKEND": f"{MODULE}.rabbitmq.RabbitMQ", "OPTIONS": {"url": f"amqp://{address}//"}},
                "redis": {"BACKEND": f"{MODULE}.redis_streams.RedisStreams", "OPTIONS": {"url": f"redis://{address}"}},
                "nats": {"BACKEND": f"{MODULE}.nats.NatsJetStream", "OPTIONS": {"servers": f"nats://{address}"}},
            }
        }
        with without_events():
            silent = seconds(ticket)
        told = seconds(ticket)

    assert median(told) < median(silent) + 0.05
    assert max(told) < 1  # and the shortest time-out of a publisher is five times that
    assert Counter((row.destination, row.state, row.attempts) for row in deliveries()) == {
        (name, PENDING, 0): 20 for name in ("rabbit", "redis", "nats")
    }


def test_broker_that_is_away_keeps_no_other_destination_waiting(
    rabbit_queue: RabbitQueue, redis_stream: RedisStream, settings: Any
) -> None:
    """
    RabbitMQ is killed: subscribers and Redis go on in the same relay, and RabbitMQ gets what it missed once it is back.

    Source: wolverine#1430.
    """
    entries = {"rabbit": rabbit_queue.entry(), "redis": redis_stream.entry(), "subscribers": LOCAL}
    logic = settings.DJANGO_LOGIC = {"OUTBOX_PUBLISHERS": entries}
    objects = tickets(5)

    with relay(*OFTEN, logic=logic) as running:
        for ticket in objects:
            ask(ticket, "one", "two")
        until(is_all_sent())
        rabbit_queue.server.kill()
        for ticket in objects:
            ask(ticket, "three", "four")
        until(lambda: waiting() == {"rabbit": 10})
        running.wait_said("rabbit takes nothing")
        rabbit_queue.start()
        until(is_all_sent())
        assert running.is_running()

    queued, streamed = seen(rabbit_queue.read()), seen(redis_stream.read())
    written = set(OutboxMessage.objects.values_list("pk", flat=True))
    assert [{sight.event for sight in found} for found in (queued, streamed, sights())] == [written] * 3
    assert [overtaking(found) for found in (queued, streamed, sights())] == [[]] * 3
    assert len(streamed) == len(sights()) == 20
    assert Counter((row.destination, row.state, row.attempts) for row in deliveries()) == {
        (name, SENT, 1): 20 for name in entries
    }


def test_event_that_one_broker_can_not_take_holds_its_object_there_alone(
    rabbit_queue: RabbitQueue, redis_stream: RedisStream, settings: Any
) -> None:
    """
    It is larger than RabbitMQ allows: dead there, its object waits there, and all the rest arrives everywhere.
    """
    entries = {"rabbit": rabbit_queue.entry(), "redis": redis_stream.entry()}
    logic = settings.DJANGO_LOGIC = {
        "OUTBOX_PUBLISHERS": entries,
        "OUTBOX_MAX_PAYLOAD_BYTES": 2 * LARGEST_MESSAGE,
    }
    swollen, *others = tickets(4)

    def swell(ticket: Any, payload: dict[str, Any], **_keywords: Any) -> dict[str, Any]:
        return {**payload, "text": "x" * LARGEST_MESSAGE}

    with hooked(Transition("swell", ["new"], "new", event=swell)):
        ask(swollen, "one")
        fresh(swollen).probe.swell()
        ask(swollen, "three")
    for ticket in others:
        ask(ticket, "one", "two", "three")
    with relay(*OFTEN, logic=logic):
        until(lambda: DEAD in states("rabbit", swollen))
        until(is_all_sent(*others))
        until(lambda: states("redis", swollen) == [SENT] * 3)
        ask(others[0], "four")
        until(is_all_sent(*others))

    dead = deliveries(swollen, destination="rabbit")[1]
    written = OutboxMessage.objects.values_list("pk", flat=True)
    assert states("rabbit", swollen) == [SENT, DEAD, PENDING]
    assert (dead.attempts, "PRECONDITION_FAILED" in dead.error) == (1, True)
    assert sorted(ids(redis_stream.read())) == sorted(written)
    assert sorted(ids(rabbit_queue.read())) == sorted(
        set(written) - {row.message_id for row in deliveries(swollen, destination="rabbit")[1:]}
    )


def test_consumer_with_an_inbox_acts_once_on_what_is_delivered_again(
    rabbit_queue: RabbitQueue, gate: Gate, settings: Any
) -> None:
    """
    A relay that was killed has sent events twice, and a consumer that fails and hangs up gets them once more: each
    is booked once.
    """
    entry = held(rabbit_queue.entry())
    logic = settings.DJANGO_LOGIC = {"OUTBOX_LEASE_SECONDS": 1, "OUTBOX_PUBLISHERS": {"rabbit": entry}}
    objects, failures = tickets(6), iter([False, False, True])

    @inbox("bookkeeping", message_id=lambda message: message.properties["message_id"])
    def book(message: Any) -> None:
        Product.objects.create(name=message.properties["message_id"])
        if next(failures, False):
            raise RuntimeError("no paper")

    def book_all(messages: Iterable[Any]) -> None:
        for message in messages:
            book(message)

    for ticket in objects:
        ask(ticket, f"wait {gate.path}" if ticket is objects[0] else "one")
    with relay(*OFTEN, logic=logic) as first:
        gate.arrival()
        first.kill9()
    gate.let_go()
    with relay(*OFTEN, logic=logic):
        until(is_all_sent())
    with rabbit_queue.taken() as messages, pytest.raises(RuntimeError, match="no paper"):
        book_all(messages)
    booked = Product.objects.count()
    with rabbit_queue.taken() as again:
        book_all(again)
        for message in again:
            message.ack()

    assert [message.delivery_info["redelivered"] for message in again] == [True] * 12
    assert booked == 2
    assert sorted(Product.objects.values_list("name", flat=True)) == sorted(
        str(pk) for pk in OutboxMessage.objects.values_list("pk", flat=True)
    )
    assert InboxEntry.objects.filter(consumer="bookkeeping").count() == 6
    assert rabbit_queue.count() == 0
