"""
Prove that relays, however many, deliver every event, each object's in the order of its moves.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from django.db import transaction

from django_logic.outbox.models import OutboxMessage
from tests.app.models import Ticket
from tests.outbox.relays import OFTEN, ask, deliveries, is_all_sent, relay, tickets
from tests.outbox.seen import overtaking, sequences, sights
from tests.races.together import Worker, together
from tests.worker.looks import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("sights_are_kept")]

#: Seconds in which a busy machine delivers some hundred events.
LONG = 90.0


def test_three_relays_deliver_hot_and_cold_objects_in_order() -> None:
    """
    Eight threads move two objects all the time and a hundred others now and then: nothing is lost, nothing overtakes.
    """
    hot, cold = tickets(2), tickets(96)

    def write(number: int) -> None:
        for count in range(24):
            ask(hot[count % 2], "hot")
            ask(cold[number * 12 + count % 12], "cold")

    with ExitStack() as stack:
        running = [stack.enter_context(relay(*OFTEN)).wait_ready() for _count in range(3)]
        outcomes = together([lambda number=number: write(number) for number in range(8)])
        until(is_all_sent(), LONG)
        busy = {sight.pid for sight in sights()}

    assert [outcome.error for outcome in outcomes] == [None] * 8
    assert len(sights()) == 8 * 48
    assert overtaking(sights()) == []
    assert [sequences(ticket.pk) for ticket in hot] == [list(range(1, 97))] * 2
    assert [sequences(ticket.pk) for ticket in cold] == [[1, 2]] * 96
    assert busy <= {one.pid for one in running}
    assert len(busy) > 1


def test_event_that_commits_late_is_not_passed_over() -> None:
    """
    Its row is older than one that was committed and delivered before: both arrive. Source: watermill#311.
    """
    early, late = tickets(2)

    with relay(*OFTEN):
        with transaction.atomic():
            ask(late, "late")
            Worker(lambda: ask(early, "early")).result()
            other = Worker(lambda: until(lambda: sequences(early.pk) == [1]))
            other.result()
            assert sequences(late.pk) == []
        until(is_all_sent())

    assert [sight.key for sight in sights()] == [str(early.pk), str(late.pk)]
    assert deliveries(late)[0].pk < deliveries(early)[0].pk


def test_gaps_that_rollbacks_leave_hide_nothing() -> None:
    """
    Rows that never come are not waited for, and rows on both sides of them arrive. Source: kamu-cli#1398.
    """
    objects = tickets(5)

    with relay(*OFTEN):
        for ticket in objects:
            with transaction.atomic():
                ask(objects[0], "undone", "undone")
                transaction.set_rollback(True)
            ask(ticket, "kept")
        until(is_all_sent())

    rows = [row.pk for row in deliveries()]
    assert [sequences(ticket.pk) for ticket in objects] == [[1]] * 5
    assert rows[-1] - rows[0] > len(rows)


def test_four_events_of_one_transaction_arrive_in_the_order_they_were_written() -> None:
    """
    Moves and a message that nobody moved, of one object, in one transaction, ten times. Source: MassTransit#3512.
    """
    objects = tickets(10)

    with ExitStack() as stack:
        for _count in range(2):
            stack.enter_context(relay(*OFTEN)).wait_ready()
        for ticket in objects:
            with transaction.atomic():
                ask(ticket, "first", "second")
                tell(ticket, sequence=3)
                tell(ticket, sequence=4)
        until(is_all_sent())

    assert [sequences(ticket.pk) for ticket in objects] == [[1, 2, 3, 4]] * 10


def tell(ticket: Ticket, **values: Any) -> None:
    """
    Write a message about an object that does not move.
    """
    OutboxMessage.objects.create(aggregate="app.ticket", key=str(ticket.pk), topic="ticket.told", payload={}, **values)
