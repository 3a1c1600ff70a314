"""
Test that old messages go while new ones come: purging and writing never wait for each other in a circle.
"""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from django_logic import Transition
from django_logic.clock import FromNow
from django_logic.outbox import relay
from django_logic.outbox.models import DeliveryState, OutboxDelivery, OutboxMessage
from django_logic.outbox.relay import purging
from tests.app.models import Ticket
from tests.flows import Bind, declare
from tests.outbox.deliveries import fates, write
from tests.races.together import Worker

pytestmark = pytest.mark.django_db(transaction=True)

#: A purge of so many rows deadlocked elsewhere.
OLD = 50_000


def write_old(count: int) -> None:
    """
    Write messages that were sent longer ago than they are kept.
    """
    OutboxMessage.objects.bulk_create([OutboxMessage(topic="t", key=str(number)) for number in range(count)])
    OutboxDelivery.objects.update(state=DeliveryState.SENT, is_open=False, sent_at=FromNow(-8 * 86_400))


def test_purge_beside_a_writer_ends(bind: Bind) -> None:
    """
    While moves go on all old messages go; no move fails, none of what they tell is lost, what is due or dead stays.
    """
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    bind(declare(Transition("open", ["new"], "opened")))
    write_old(OLD)
    dead, due = write("dead", "due")
    OutboxDelivery.objects.filter(pk=dead).update(state=DeliveryState.DEAD, is_open=False)
    OutboxDelivery.objects.filter(pk__in=[dead, due]).update(created=FromNow(-8 * 86_400))
    is_moving, is_over = threading.Event(), threading.Event()

    def move() -> int:
        count = 0
        while not is_over.is_set() and count < OLD:
            Ticket.objects.create().flow.open()
            count += 1
            is_moving.set()
        return count

    writer = Worker(move)
    assert is_moving.wait(30)
    try:
        gone = relay.purge()
    finally:
        is_over.set()
    moved = writer.result()

    assert gone == 2 * OLD
    assert (OutboxMessage.objects.count(), fates()) == (moved + 2, [("dead", 0)] + [("pending", 0)] * (moved + 1))


def write_sent_behind(young: int) -> None:
    """
    Write an old sent message behind young ones.
    """
    *_young, last = write(*map(str, range(young + 1)))
    OutboxDelivery.objects.update(state=DeliveryState.SENT, is_open=False, sent_at=FromNow())
    OutboxDelivery.objects.filter(pk=last).update(sent_at=FromNow(-8 * 86_400))


def test_purge_finds_what_is_behind_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    What is old goes, though more than a batch of rows before it were delivered late.
    """
    monkeypatch.setattr(purging, "BATCH", 2)
    write_sent_behind(5)

    assert relay.purge() == 2
    assert OutboxMessage.objects.count() == 5


def test_purge_looks_at_the_first_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    What is old behind very many young rows waits for these, so that no purge reads all that is kept.
    """
    monkeypatch.setattr(purging, "BATCH", 2)
    monkeypatch.setattr(purging, "LOOKS", 2)
    write_sent_behind(4)

    behind = relay.purge()
    OutboxDelivery.objects.update(sent_at=FromNow(-8 * 86_400))

    assert (behind, relay.purge()) == (0, 10)


def test_without_a_relay_messages_go_by_their_age(settings: object) -> None:
    """
    Where others read the database's log, no delivery says what was sent, so age alone does.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_RELAY": "none"}  # type: ignore[attr-defined]
    old = OutboxMessage(topic="t", key="a")
    young = OutboxMessage(topic="t", key="b")
    OutboxMessage.objects.bulk_create([old, young])
    # Through the database alone, since messages are never changed.
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {OutboxMessage._meta.db_table} SET occurred_at = '2020-01-01' WHERE aggregateid = 'a'")

    assert relay.purge() == 1

    assert list(OutboxMessage.objects.values_list("key", flat=True)) == ["b"]
