"""
Test who gets what: a claim takes the head of a key and what follows it, for as long as a lease lasts.
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction

from django_logic.clock import FromNow
from django_logic.outbox.models import DeliveryState, OutboxDelivery, OutboxMessage
from django_logic.outbox.publishers import Fate, dead, failed
from django_logic.outbox.relay import claim as claiming
from django_logic.outbox.relay import mark
from django_logic.outbox.relay.claim import claim
from django_logic.outbox.relay.lane import Lane
from tests.outbox.deliveries import SUBSCRIBERS, change, fates, pass_time, row, rows_of, write
from tests.races.together import together

pytestmark = pytest.mark.django_db(transaction=True)

SKIP_VIEWS = {"OUTBOX_ON_DEAD": {"parcel.viewed": "skip", "*": "block"}}


def test_claim_leases_the_oldest_open_row_of_each_key() -> None:
    """
    What is claimed first of a key is its oldest row, under one token, a lease and a counted attempt.
    """
    a, b, _a, _b = write("a", "b", "a", "b")

    claimed = claim("default", SUBSCRIBERS, run=1, relay="here:1")

    found = row(a)
    assert [[a], [b]] == rows_of(claimed)
    assert ("leased", 1, claimed.token, "here:1") == (found.state, found.attempts, found.lease_token, found.relay)
    assert timedelta(seconds=55) < found.next_attempt_at - found.created < timedelta(seconds=100)


def test_event_tells_all_of_its_message() -> None:
    """
    A claimed event is its message, and says which attempt this is.
    """
    message = OutboxMessage.objects.create(
        topic="parcel.told", key="7", aggregate="app.parcel", payload={"x": ["ü"]}, sequence=3, schema="urn:x"
    )

    ((item,),) = claim("default", SUBSCRIBERS).runs.values()

    event = item.event
    assert event is not None
    assert (message.id, "parcel.told", "7", "app.parcel", 3, "urn:x") == (
        event.id,
        event.topic,
        event.key,
        event.aggregate,
        event.sequence,
        event.schema,
    )
    assert (event.payload, event.attempt, event.handled) == ({"x": ["ü"]}, 1, frozenset())
    assert event.occurred_at.tzinfo is not None


def test_one_key_of_two_models_is_two_places() -> None:
    """
    Order 1 does not wait for customer 1.
    """
    for aggregate in ("app.order", "app.customer"):
        OutboxMessage.objects.create(topic="t", key="1", aggregate=aggregate)

    claimed = claim("default", SUBSCRIBERS)

    assert set(claimed.runs) == {("app.order", "1"), ("app.customer", "1")}


def test_destinations_are_claimed_apart(settings: Any) -> None:
    """
    A claim takes rows of its own destination, and a key that waits at one goes on at the other.
    """
    entry = {"BACKEND": "tests.outbox.deliveries.Answering"}
    settings.DJANGO_LOGIC = {"OUTBOX_PUBLISHERS": {"one": entry, "two": entry}}
    first, *_rest = write("a", "a")
    change(first, state=DeliveryState.DEAD)

    assert not claim("default", "one")
    assert len(claim("default", "two").runs) == 1


def test_run_follows_its_head_without_a_gap(only_postgres: None) -> None:
    """
    What follows a head comes with it, as far as all of it is due; only the head's attempt is counted.
    """
    a1, a2, a3, _a4 = write("a", "a", "a", "a")
    change(a3, next_attempt_at=row(a3).created + timedelta(hours=1))

    claimed = claim("default", SUBSCRIBERS)

    assert [[a1, a2]] == rows_of(claimed)
    assert [item.attempt for item in claimed.runs["", "a"]] == [1, 1]
    assert fates() == [("leased", 1), ("leased", 0), ("pending", 0), ("pending", 0)]


def test_run_is_of_limited_length(only_postgres: None) -> None:
    """
    No more than so many rows of a key, so many keys, and twice as many rows in all are taken at once.
    """
    write(*["a", "b", "c", "d"] * 6)

    claimed = claim("default", SUBSCRIBERS, keys=3, run=5)

    assert [len(run) for run in claimed.runs.values()] == [5, 1]
    assert sum(state == "leased" for state, _attempts in fates()) == 6


def test_row_in_its_pause_keeps_its_key() -> None:
    """
    Nothing passes a row that waits for its next attempt.
    """
    first, _second = write("a", "a")
    claimed = claim("default", SUBSCRIBERS, run=1)
    mark.mark_failed("default", claimed.token, claimed.runs["", "a"][0], failed("no"))

    assert not claim("default", SUBSCRIBERS)

    pass_time(first)
    again = claim("default", SUBSCRIBERS)
    assert ([[first]], 2) == (rows_of(again), again.runs["", "a"][0].attempt)


def test_row_that_failed_before_goes_alone(only_postgres: None) -> None:
    """
    What follows a row that has failed waits until that one has arrived.
    """
    first, *_rest = write("a", "a", "a")
    change(first, attempts=1)

    assert [[first]] == rows_of(claim("default", SUBSCRIBERS))


@pytest.mark.parametrize(("topic", "waiting"), [("parcel.told", 0), ("parcel.viewed", 1)])
def test_dead_head_keeps_its_key_unless_its_topic_skips(topic: str, waiting: int, settings: Any) -> None:
    """
    With "block" nothing of the key goes on behind a dead message, with "skip" the next one does; other keys flow.
    """
    settings.DJANGO_LOGIC = SKIP_VIEWS
    write("a", topic=topic)
    claimed = claim("default", SUBSCRIBERS)
    mark.mark_failed("default", claimed.token, claimed.runs["", "a"][0], dead("never"))
    (behind,) = write("a")
    (other,) = write("b")

    found = {pk for run in rows_of(claim("default", SUBSCRIBERS)) for pk in run}

    assert found == ({behind, other} if waiting else {other})
    assert OutboxDelivery.objects.get(topic=topic, state="dead").is_open is not bool(waiting)


def test_lease_that_is_over_is_claimed_alone() -> None:
    """
    A relay that died leaves its rows until the lease is over; then each is claimed alone, as a further attempt.
    """
    a1, a2, a3 = write("a", "a", "a")
    claim("default", SUBSCRIBERS)
    assert not claim("default", SUBSCRIBERS)

    pass_time()
    heir = claim("default", SUBSCRIBERS)

    assert ([[a1]], 2) == (rows_of(heir), heir.runs["", "a"][0].attempt)
    mark.mark_sent("default", heir.token, heir.runs["", "a"])
    pass_time(a2, a3)
    assert [[a2]] == rows_of(claim("default", SUBSCRIBERS, run=1))


def test_leases_that_are_over_are_claimed_one_by_one() -> None:
    """
    One message that kills its relay costs those of other keys, which were claimed with it, no attempt after the first.
    """
    a, b = write("a", "b")
    claim("default", SUBSCRIBERS)
    pass_time()
    (c,) = write("c")

    claims = [rows_of(claim("default", SUBSCRIBERS)) for _count in range(4)]

    assert claims == [[[a]], [[b]], [[c]], []]


def test_lost_token_marks_nothing() -> None:
    """
    Who lost his lease to another relay changes nothing any more, whatever became of the message.
    """
    (pk,) = write("a")
    lost = claim("default", SUBSCRIBERS)
    (item,) = lost.runs["", "a"]
    pass_time()
    heir = claim("default", SUBSCRIBERS)
    before = OutboxDelivery.objects.values().get()

    assert mark.mark_sent("default", lost.token, [item]) == 0
    assert mark.mark_failed("default", lost.token, item, failed("no")) is None
    assert mark.mark_failed("default", lost.token, item, dead("no")) is None
    assert mark.renew("default", lost.token, [item]) is False
    mark.release("default", lost.token, [item], "no")

    assert OutboxDelivery.objects.values().get() == before
    assert mark.mark_sent("default", heir.token, heir.runs["", "a"]) == 1
    assert fates(pk) == [("sent", 2)]


def test_released_rows_are_as_if_never_claimed() -> None:
    """
    A release takes the counted attempt back and leaves the row due at once.
    """
    write("a", "a", "b")
    claimed = claim("default", SUBSCRIBERS)
    items = [item for run in claimed.runs.values() for item in run]

    mark.release("default", claimed.token, items)

    assert fates() == [("pending", 0)] * 3
    assert not OutboxDelivery.objects.exclude(lease_token=None).exists()
    assert len(claim("default", SUBSCRIBERS).runs) == 2


def test_failure_pauses_grow_within_their_bounds(settings: Any) -> None:
    """
    The pause after an error doubles up to its limit, a quarter shorter or longer.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_RETRY_SECONDS": 100, "OUTBOX_RETRY_LIMIT_SECONDS": 300}
    (pk,) = write("a")
    pauses = []
    for _ in range(4):
        pass_time()
        claimed = claim("default", SUBSCRIBERS)
        before = now()
        assert mark.mark_failed("default", claimed.token, claimed.runs["", "a"][0], failed("no")) is Fate.FAILED
        pauses.append((row(pk).next_attempt_at - before).total_seconds())

    for pause, middle in zip(pauses, (100, 200, 300, 300), strict=True):
        assert middle * 0.75 - 1 <= pause <= middle * 1.25 + 10
    assert len({round(pause / middle, 3) for pause, middle in zip(pauses, (100, 200, 300, 300), strict=True)}) > 1
    assert fates(pk) == [("pending", 4)]
    assert row(pk).error == "no"


def now() -> Any:
    """
    Return the database's time.
    """
    rows = OutboxDelivery.objects.annotate(now=FromNow())
    return rows.values_list("now", flat=True)[0]


def test_last_attempt_is_dead(settings: Any) -> None:
    """
    After OUTBOX_MAX_ATTEMPTS errors a message is dead, with its last error, and is not claimed again.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_MAX_ATTEMPTS": 2}
    (pk,) = write("a")
    ends = []
    for _ in range(2):
        pass_time()
        claimed = claim("default", SUBSCRIBERS)
        ends.append(mark.mark_failed("default", claimed.token, claimed.runs["", "a"][0], failed(OSError("no"))))

    pass_time()
    assert ends == [Fate.FAILED, Fate.DEAD]
    assert not claim("default", SUBSCRIBERS)
    assert fates(pk) == [("dead", 2)]
    assert (row(pk).error, row(pk).is_open, row(pk).lease_token) == ("OSError: no", True, None)


def test_claim_begins_behind_a_key_and_ends_where_it_says(only_postgres: None) -> None:
    """
    The walk goes from key to key; a claim says where it ended, so that the next one goes on from there.
    """
    write("d", "c", "b", "a")

    first = claim("default", SUBSCRIBERS, keys=2)
    second = claim("default", SUBSCRIBERS, keys=2, after=first.end)

    assert set(first.runs) == {("", "a"), ("", "b")}
    assert first.end == ("", "b")
    assert set(second.runs) == {("", "c"), ("", "d")}
    assert not claim("default", SUBSCRIBERS, after=second.end)


def test_due_key_behind_many_that_are_not_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    However many keys wait, those behind them that are due are claimed, by their heads.
    """
    monkeypatch.setattr(claiming, "FIRST_LOOK", 2)
    *waiting, due, _follower, other = write(*"abcdefg", "h", "h", "i")
    change(*waiting, next_attempt_at=FromNow(60))

    claimed = claim("default", SUBSCRIBERS, run=1)

    assert rows_of(claimed) == [[due], [other]]


def test_relay_comes_back_to_the_first_key(only_postgres: None) -> None:
    """
    A walk that ends at the last key begins anew, so no key is left out and none is preferred.
    """
    lane = Lane("default", SUBSCRIBERS, "here", 0.01, must_stop=lambda: False)
    lane.keys = 2
    write("c", "b", "a")

    lane.turn()
    assert lane.after == ("", "b")
    write("a")
    lane.turn()
    assert lane.after == ("", "c")
    lane.turn()
    lane.turn()

    assert fates() == [("sent", 1)] * 4


def test_claim_within_a_transaction_holds_when_that_commits() -> None:
    """
    Within an open transaction a claim is part of it: undone with it, and kept with it.
    """
    (pk,) = write("a")

    with transaction.atomic():
        claim("default", SUBSCRIBERS)
        transaction.set_rollback(True)
    assert fates(pk) == [("pending", 0)]
    with transaction.atomic():
        claimed = claim("default", SUBSCRIBERS)
        mark.mark_sent("default", claimed.token, claimed.runs["", "a"])

    assert fates(pk) == [("sent", 1)]


@pytest.mark.parametrize("round_number", range(3))
def test_claims_at_once_never_share_a_key(round_number: int) -> None:
    """
    Of relays that claim at the same moment none gets a key that another one has.
    """
    write(*[f"k{number % 12}" for number in range(36)])

    outcomes = together([lambda: claim("default", SUBSCRIBERS, keys=5) for _ in range(4)])

    assert [outcome.error for outcome in outcomes if outcome.error] == []
    places = [place for outcome in outcomes for place in outcome.value.runs]
    assert len(places) == len(set(places))
    assert len(places) >= 5
    leased = OutboxDelivery.objects.filter(state="leased")
    for outcome in outcomes:
        pks = {pk for run in rows_of(outcome.value) for pk in run}
        assert pks == set(leased.filter(lease_token=outcome.value.token).values_list("pk", flat=True))


def test_row_of_a_deleted_message_is_claimed_without_event() -> None:
    """
    A delivery whose message is gone is claimed all the same, so that it comes to an end.
    """
    write("a")
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {OutboxMessage._meta.db_table}")

    ((item,),) = claim("default", SUBSCRIBERS).runs.values()

    assert item.event is None


def test_unknown_token_renews_nothing() -> None:
    """
    A lease is renewed only whole: one row that is another's now makes it lost.
    """
    write("a", "b")
    claimed = claim("default", SUBSCRIBERS)
    items = [item for run in claimed.runs.values() for item in run]

    assert mark.renew("default", claimed.token, items) is True
    change(items[0].pk, lease_token=uuid4())
    assert mark.renew("default", claimed.token, items) is False


def test_lease_is_timed_from_before_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A process that is frozen while it claims must not think its lease to be fresh when it wakes up.
    """
    write("a")
    clock = iter([100.0, 700.0, 700.0])
    monkeypatch.setattr("django_logic.outbox.relay.claim.time", SimpleNamespace(monotonic=lambda: next(clock)))

    assert claim("default", SUBSCRIBERS).leased_at == 100.0
