"""
Prove that relays which are killed, frozen or killed by a message lose nothing and let nothing overtake.
"""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from typing import Any

import pytest

from django_logic.outbox.models import DeliveryState, OutboxDelivery
from tests.app.models import Ticket
from tests.outbox.relays import OFTEN, ask, deliveries, is_all_sent, relay, tickets
from tests.outbox.seen import overtaking, sequences, sights
from tests.races.together import Worker
from tests.worker.gates import Gate
from tests.worker.looks import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("sights_are_kept")]

LEASE = 2.0
SHORT = {"OUTBOX_LEASE_SECONDS": LEASE}
#: The shortest one there may be.
SHORTEST = {"OUTBOX_LEASE_SECONDS": 1, "OUTBOX_MAX_ATTEMPTS": 3}
LONG = 90.0


def states(ticket: Ticket) -> list[str]:
    """
    Return how far each event of an object is.
    """
    return [row.state for row in deliveries(ticket)]


def test_rest_of_a_killed_relay_is_delivered_within_its_lease(gate: Gate) -> None:
    """
    SIGKILL in the middle of a batch: the next relay sends the rest once the lease is over. Source: wolverine#565.
    """
    objects = tickets(8)
    for ticket in objects:
        ask(ticket, "one", f"wait {gate.path}" if ticket is objects[3] else "two", "three")

    with relay(*OFTEN, logic=SHORT) as first:
        gate.arrival()
        first.kill9()
    killed_at = time.monotonic()
    gate.let_go(9)
    with relay(*OFTEN, logic=SHORT):
        until(is_all_sent())
    took = time.monotonic() - killed_at

    assert {sight.event for sight in sights()} == {row.message_id for row in deliveries()}
    assert overtaking(sights()) == []
    assert took < LEASE + 8


def test_event_that_takes_longer_than_a_lease_is_told_once() -> None:
    """
    While its subscriber works, the relay renews the lease: no other one begins the same anew, nor what arrived before
    it, and the marks count.
    """
    (ticket,) = tickets(1)
    ask(ticket, "one", "sleep 3.5", "three")

    with relay(*OFTEN, logic=SHORTEST), relay(*OFTEN, logic=SHORTEST):
        until(is_all_sent())

    assert sequences(ticket.pk) == [1, 2, 3]
    assert [row.attempts for row in deliveries(ticket)] == [1, 1, 1]


def test_relays_that_are_killed_all_the_time_lose_nothing() -> None:
    """
    Three relays, one of which is killed and replaced again and again while eight objects move.
    """
    objects = tickets(8)
    writer = Worker(lambda: [ask(ticket, f"sleep 0.0{count % 3}") for count in range(15) for ticket in objects])

    with ExitStack() as stack:
        running = [stack.enter_context(relay(*OFTEN, logic=SHORT)).wait_ready() for _count in range(3)]
        for _count in range(6):
            seen = len(sights())
            until(lambda seen=seen: len(sights()) > seen or is_all_sent()())
            running.pop(0).kill9()
            running.append(stack.enter_context(relay(*OFTEN, logic=SHORT)))
        writer.result()
        until(is_all_sent(), LONG)

    assert {sight.event for sight in sights()} == {row.message_id for row in deliveries()}
    assert len(deliveries()) == 8 * 15
    assert overtaking(sights()) == []


def test_marks_of_a_relay_that_slept_past_its_lease_count_for_nothing(gate: Gate) -> None:
    """
    SIGSTOP past the lease: another relay takes over, and the token refuses what the first one says when it wakes.

    Source: kafkaflow-contrib#24.
    """
    (ticket,) = tickets(1)
    ask(ticket, "one", f"wait {gate.path}", "fail", "four")

    with relay(*OFTEN, "--name", "first", logic=SHORT) as first:
        gate.arrival()
        first.signal(signal.SIGSTOP)
        gate.let_go(2)
        with relay(*OFTEN, "--name", "second", logic={**SHORT, "OUTBOX_RETRY_SECONDS": 600}):
            until(lambda: deliveries(ticket)[2].error)
            before = list(OutboxDelivery.objects.order_by("id").values()[:3])
            first.signal(signal.SIGCONT)
            first.wait_said("delivered under a lease that is lost")
            first.term()
            status = first.wait()
            after = list(OutboxDelivery.objects.order_by("id").values()[:3])

    assert status == 0
    assert before == after
    assert [row.relay for row in deliveries(ticket)][:3] == ["second"] * 3
    assert states(ticket) == ["sent", "sent", "pending", "pending"]
    assert overtaking(sights()) == []


class TestMessageThatKillsItsRelay:
    """
    It spends attempts of its own, and nobody else's.
    """

    def run_until(self, condition: Any, **logic: Any) -> int:
        """
        Run relays, one after the other as they die, until a condition holds; return how many died.
        """
        deaths, deadline = 0, time.monotonic() + LONG
        while time.monotonic() < deadline:
            with relay(*OFTEN, logic={**SHORTEST, **logic}) as running:
                until(lambda running=running: condition() or not running.is_running(), LONG)
                if condition() and running.is_running():
                    return deaths
                assert running.wait() == 7
                deaths += 1
        raise AssertionError(f"It did not come to an end, after {deaths} deaths.")

    def test_it_is_dead_in_the_end_and_its_followers_wait(self) -> None:
        """
        A message that ends the process each time is dead after its attempts; other objects get theirs meanwhile, also
        those that were claimed with it, and only its own followers wait.
        """
        before, poisoned, *others = tickets(6)
        ask(before, "one", "two")
        ask(poisoned, "one", "exit 7", "three")
        for ticket in others:
            ask(ticket, "one", "two")

        deaths = self.run_until(lambda: DeliveryState.DEAD in states(poisoned) and is_all_sent(before, *others)())

        dead = deliveries(poisoned)[1]
        assert states(poisoned)[:2] == ["sent", "dead"]
        assert sequences(poisoned.pk)[-1] == 2
        assert dead.error.startswith("[lost]")
        assert deaths <= SHORTEST["OUTBOX_MAX_ATTEMPTS"] + 1
        assert [states(ticket) for ticket in (before, *others)] == [["sent", "sent"]] * 5
        assert max(row.attempts for ticket in others for row in deliveries(ticket)) <= 2

    def test_its_followers_pass_where_the_topic_lets_them(self) -> None:
        """
        With the policy "skip" they are delivered, once it is dead.
        """
        poisoned, other = tickets(2)
        ask(poisoned, "one", "exit 7", "three")
        ask(other, "one")

        self.run_until(
            lambda: states(poisoned)[2] == DeliveryState.SENT and is_all_sent(other)(),
            OUTBOX_ON_DEAD={"ticket.*": "skip"},
        )

        assert states(poisoned) == ["sent", "dead", "sent"]
        assert sequences(poisoned.pk)[-1] == 3
