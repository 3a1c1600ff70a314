"""
Prove how the thread of one destination goes on from turn to turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from django_logic import Transition
from django_logic.backoff import Backoff
from django_logic.outbox import BrokerUnavailable, Event
from django_logic.outbox.models import OutboxDelivery
from django_logic.outbox.publishers import Result, sent
from django_logic.outbox.relay import lane as lanes
from django_logic.outbox.relay.lane import Lane
from tests.app.models import Ticket
from tests.flows import Bind, declare
from tests.outbox.relays import ask

pytestmark = pytest.mark.django_db(transaction=True)


class Broker:
    """
    Hand each event to a function that may say that nothing goes through.
    """

    batch_size = 1

    def __init__(self, hear: Callable[[Event], None]) -> None:
        self.hear = hear

    def publish(self, events: Sequence[Event]) -> Sequence[Result]:
        """
        Deliver.
        """
        for event in events:
            self.hear(event)
        return [sent() for _event in events]

    def close(self) -> None:
        """
        Let go of nothing.
        """


@pytest.fixture
def lane(bind: Bind, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lane]:
    """
    Give a lane that pauses for no time, whose publisher the test gives.
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

    def hear(event: Event) -> None:
        if event.key == culprit:
            raise BrokerUnavailable("nothing goes through")

    lane.publisher = Broker(hear)
    for ticket in tickets:
        ticket.flow.open()
    for _turn in range(8):
        lane.turn()

    found = dict(OutboxDelivery.objects.values_list("key", "state"))
    assert found.pop(culprit) == "pending"
    assert set(found.values()) == {"sent"}
    assert OutboxDelivery.objects.get(key=culprit).attempts == 0


def test_event_that_is_to_blame_for_an_outage_is_tried_behind_all_others(lane: Lane) -> None:
    """
    The oldest event of all would else end each claim at once, and only the tries in between would get through.
    """
    objects = [Ticket.objects.create() for _count in range(10)]
    culprit, tries = str(objects[-1].pk), 0

    def hear(event: Event) -> None:
        nonlocal tries
        if event.key == culprit:
            tries += 1
            raise BrokerUnavailable("nothing goes through")

    lane.publisher = Broker(hear)
    for ticket in reversed(objects):
        ask(ticket, "one", "two", "three")
    left = OutboxDelivery.objects.exclude(key=culprit).exclude(state="sent")
    for _turn in range(100):
        if not left.exists():
            break
        lane.turn()

    assert not left.exists()
    assert 0 < tries < 6
    assert set(OutboxDelivery.objects.filter(key=culprit).values_list("state", "attempts")) == {("pending", 0)}


def test_key_is_no_longer_suspect_once_its_event_has_arrived(lane: Lane) -> None:
    """
    What met an outage that was somebody else's does not stand behind all others for ever.
    """
    first, second = Ticket.objects.create(), Ticket.objects.create()
    order: list[str] = []
    is_away = True

    def hear(event: Event) -> None:
        if is_away:
            raise BrokerUnavailable("nothing goes through")
        order.append(event.key)

    lane.publisher = Broker(hear)
    ask(first, "one")
    lane.turn()
    is_away = False
    for _turn in range(4):
        lane.turn()
    ask(first, "two")
    ask(second, "one")
    for _turn in range(4):
        lane.turn()

    assert order == [str(first.pk), str(first.pk), str(second.pk)]


def test_suspects_are_forgotten_when_nothing_is_due(lane: Lane) -> None:
    """
    Keys that another relay has delivered meanwhile are not kept for ever.
    """
    is_away = True

    def hear(event: Event) -> None:
        if is_away:
            raise BrokerUnavailable("nothing goes through")

    lane.publisher = Broker(hear)
    ask(Ticket.objects.create(), "one")
    lane.turn()
    assert len(lane.suspects) == 1
    OutboxDelivery.objects.update(state="sent", is_open=False)

    for _turn in range(3):
        lane.turn()

    assert lane.suspects == set()
