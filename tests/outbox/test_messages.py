"""
Test messages that are no move's: they are stored with their deliveries, and never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from django_logic.outbox import PayloadRefused, inbox, relay, subscribe
from django_logic.outbox.models import OutboxDelivery, OutboxMessage
from django_logic.outbox.relay import wake
from django_logic.outbox.subscribers import forget

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """
    Give the topics that a subscriber of everything heard.
    """
    topics: list[str] = []

    @subscribe("*")
    def hear(event: Any) -> None:
        topics.append(event.topic)

    yield topics
    forget(hear)


def test_message_as_the_lesson_writes_it_is_delivered(heard: list[str]) -> None:
    """
    A message made by hand, or several at once, come with their deliveries, each with a place of its own without a key.
    """
    OutboxMessage.objects.create(topic="order.placed", payload={"order_id": 7, "from": "draft", "to": "placed"})
    OutboxMessage.objects.bulk_create([OutboxMessage(topic="a", key="1"), OutboxMessage(topic="b", key="1")])

    assert relay.drain("default") == 3
    assert sorted(heard) == ["a", "b", "order.placed"]
    assert len(set(OutboxDelivery.objects.values_list("key", flat=True))) == 2


def test_key_may_be_a_number_and_topic_may_not_be_nothing() -> None:
    """
    Messages of one key share a place, 0 too; one that nobody could be told of is refused.
    """
    for _count in range(2):
        OutboxMessage.objects.create(topic="a", key=0)

    assert set(OutboxDelivery.objects.values_list("key", flat=True)) == {"0"}
    with pytest.raises(PayloadRefused, match="without a topic"):
        OutboxMessage.objects.create(topic="")


@pytest.mark.parametrize(
    "change",
    [
        lambda message: message.save(),
        lambda message: OutboxMessage(id=message.id, topic="new").save(force_update=True),
        lambda message: OutboxMessage(id=message.id, topic="new").save(update_fields=["topic"]),
        lambda message: OutboxMessage.objects.update(topic="new"),
        lambda message: OutboxMessage.objects.bulk_update([message], ["topic"]),
        lambda message: OutboxMessage.objects.bulk_create([message], ignore_conflicts=True),
        lambda message: OutboxMessage.objects.bulk_create(
            [message], update_conflicts=True, update_fields=["topic"], unique_fields=["id"]
        ),
    ],
    ids=["save", "force_update", "update_fields", "update", "bulk_update", "ignore_conflicts", "update_conflicts"],
)
def test_stored_message_is_never_changed(change: Callable[[OutboxMessage], Any]) -> None:
    """
    Whatever would change a message is refused, says why, and leaves it and its deliveries alone.
    """
    message = OutboxMessage.objects.create(topic="old")
    message.topic = "new"

    with pytest.raises(TypeError, match="never changed"):
        change(message)

    assert list(OutboxMessage.objects.values_list("topic", flat=True)) == ["old"]
    assert OutboxDelivery.objects.count() == 1


def test_message_made_by_hand_wakes_relays(only_postgres: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A relay hears of it at once, as of a move.
    """
    monkeypatch.setattr(wake, "QUIET_TIME", 0)
    listener = connection.copy()
    listener.connect()
    try:
        with listener.cursor() as cursor:
            cursor.execute("LISTEN django_logic_events")

        OutboxMessage.objects.create(topic="a")

        assert len(list(listener.connection.notifies(timeout=5, stop_after=1))) == 1
    finally:
        listener.close()


def test_inbox_knows_consumers_that_differ_in_capitals_only() -> None:
    """
    Two consumers are two, on every database and whatever its collation.
    """
    taken = []
    for name in ("Billing", "billing", "billing 2"):
        inbox(name, message_id=lambda key: key)(lambda key, name=name: taken.append(name))("1")

    assert taken == ["Billing", "billing", "billing 2"]


def test_inbox_takes_ids_that_differ_in_capitals_only() -> None:
    """
    Two ids are two, on every database and whatever its collation.
    """
    taken = []

    @inbox("a consumer", message_id=lambda key: key)
    def take(key: str) -> None:
        taken.append(key)

    for key in ("AB", "ab", "ab ", "áb", "AB"):
        take(key)

    assert taken == ["AB", "ab", "ab ", "áb"]
