"""
Prove how the thread of one destination goes on from turn to turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_logic import Transition
from django_logic.backoff import Backoff
from django_logic.outbox import BrokerUnavailable, subscribe
from django_logic.outbox.models import OutboxDelivery
from django_logic.outbox.relay import lane as lanes
from django_logic.outbox.relay.lane import Lane
from django_logic.outbox.subscribers import forget
from tests.app.models import Ticket
from tests.flows import Bind, declare

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lane(bind: Bind, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lane]:
    """
    Give the lane of the subscribers, which pauses for no time.
    """
    bind(declare(Transition("open", ["new"], "opened")))
    monkeypatch.setattr(lanes, "OUTAGE", Backoff(first=0, limit=0, jitter=0))
    made = Lane("default", "subscribers", "a test", poll=0.01, must_stop=lambda: False)
    yield made
    made.publisher.close()


def test_event_that_is_to_blame_for_an_outage_does_not_keep_others_from_trying(lane: Lane) -> None:
    """
    Each try whether a destination is back takes another key, so one that brings it down alone holds up itself only.
    """
    tickets = [Ticket.objects.create() for _count in range(3)]
    culprit = str(tickets[0].pk)

    @subscribe("ticket.opened")
    def hear(event: Any) -> None:
        if event.key == culprit:
            raise BrokerUnavailable("nothing goes through")

    for ticket in tickets:
        ticket.flow.open()
    for _turn in range(8):
        lane.turn()
    forget(hear)

    found = dict(OutboxDelivery.objects.values_list("key", "state"))
    assert found.pop(culprit) == "pending"
    assert set(found.values()) == {"sent"}
    assert OutboxDelivery.objects.get(key=culprit).attempts == 0
