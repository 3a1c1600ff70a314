"""
Prove that real brokers get every event in order, whoever is killed or frozen: a broker under load, or a relay.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from django_logic.outbox.models import DeliveryState, OutboxDelivery, OutboxMessage
from tests.outbox.brokers import (
    BROKERS,
    Broker,
    JetStream,
    RedisStream,
    held,
    ids,
    seen,
)
from tests.outbox.moving import move_all, moving
from tests.outbox.relays import OFTEN, Relay, ask, deliveries, is_all_sent, relay, tickets
from tests.outbox.seen import overtaking
from tests.outbox.servers import SHARED_SERVERS
from tests.worker.gates import Gate
from tests.worker.looks import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]
pytest_plugins = [SHARED_SERVERS, BROKERS]

SHORT = {"OUTBOX_LEASE_SECONDS": 2}
#: Seconds in which a busy machine delivers some thousand events.
LONG = 60.0


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Broker:
    """
    Give the broker that the test was asked to use.
    """
    found: Broker = request.getfixturevalue(request.param)
    return found


def outages(running: Relay) -> int:
    """
    Count how often a relay has found its destination away.
    """
    return running.log.count("takes nothing")


def has_sent_more(than: int) -> Any:
    """
    Return a question: whether relays have marked more deliveries than that.
    """
    return lambda: OutboxDelivery.objects.filter(state=DeliveryState.SENT).count() > than


def everything_arrived(broker: Broker) -> list[bytes]:
    """
    Read a broker; all events are there, and none was there before an earlier one of its object.
    """
    read = broker.read()
    written = OutboxMessage.objects.values_list("pk", flat=True)
    assert set(written) ^ set(ids(read)) == set()
    assert overtaking(seen(read)) == []
    return read


@pytest.mark.parametrize("broker", ["rabbit_queue", "redis_stream", "jet_stream"], indirect=True)
class TestKilled:
    """
    Both ends of a delivery may die at any moment.
    """

    def test_broker_under_load_costs_no_event_and_no_attempt(self, broker: Broker, settings: Any) -> None:
        """
        SIGKILL while hundreds of events wait, and a start while moves go on: all arrive in order, and spend no attempt
        but those that RabbitMQ refused for want of a binding.
        """
        logic = settings.DJANGO_LOGIC = {"OUTBOX_PUBLISHERS": {"broker": broker.entry()}}
        objects = tickets(100)
        move_all(objects, 5)

        with relay(*OFTEN, logic=logic) as running:
            with moving(objects):
                until(lambda: broker.count() > 50)
                broker.server.kill()
                until(lambda: outages(running) > 0)
                written, told = OutboxMessage.objects.count(), len(deliveries(state=DeliveryState.SENT))
                until(lambda: OutboxMessage.objects.count() > written + 10)
                assert len(deliveries(state=DeliveryState.SENT)) == told
                broker.start()
                until(has_sent_more(told))
            until(is_all_sent(), LONG)
            assert running.is_running()
            refused = running.log.count("No queue takes the topic")

        everything_arrived(broker)
        assert sum(row.attempts - 1 for row in deliveries()) == refused

    def test_relay_in_the_middle_of_a_claim_repeats_and_loses_nothing(
        self, broker: Broker, gate: Gate, settings: Any
    ) -> None:
        """
        SIGKILL after two batches of a claim have arrived and none is marked: the next relay sends these again, and
        the rest. JetStream drops what it knows. Source: wolverine#565.
        """
        logic = settings.DJANGO_LOGIC = {**SHORT, "OUTBOX_PUBLISHERS": {"broker": held(broker.entry())}}
        objects = tickets(8)
        for ticket in objects:
            ask(ticket, "one", f"wait {gate.path}" if ticket is objects[3] else "two", "three")

        with relay(*OFTEN, logic=logic) as first:
            gate.arrival()
            arrived, told = broker.count(), Counter(row.state for row in deliveries())
            first.kill9()
        gate.let_go()
        ask(objects[0], "four")
        with relay(*OFTEN, logic=logic):
            until(is_all_sent())

        times = Counter(Counter(ids(everything_arrived(broker))).values())
        assert arrived == 16
        assert told == {DeliveryState.LEASED: 24}
        assert times == ({1: 25} if isinstance(broker, JetStream) else {2: 16, 1: 9})
        assert max(row.attempts for row in deliveries()) == 2


def test_frozen_redis_is_left_after_its_time_out_and_nothing_is_lost(redis_stream: RedisStream, settings: Any) -> None:
    """
    SIGSTOP while events stream in: the relay waits no longer than it was told, tries again, and goes on by itself. What
    Redis finds on the wire as it wakes up was sent again meanwhile, and overtakes nothing.
    """
    logic = settings.DJANGO_LOGIC = {"OUTBOX_PUBLISHERS": {"stream": redis_stream.entry()}}

    with relay(*OFTEN, logic=logic) as running:
        with moving(tickets(20)):
            until(lambda: redis_stream.count() > 50)
            with redis_stream.server.frozen():
                until(lambda: outages(running) > 1, 15)
            told = len(deliveries(state=DeliveryState.SENT))
            until(has_sent_more(told))
        until(is_all_sent(), LONG)
        assert running.is_running()

    read = everything_arrived(redis_stream)
    assert len(read) > len(set(ids(read)))
    assert {row.attempts for row in deliveries()} == {1}
