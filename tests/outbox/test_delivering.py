"""
Test what becomes of a claim: each message ends as its publisher says, and no key goes past one that did not arrive.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import connection

from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import BrokerUnavailable, Undeliverable
from django_logic.outbox.models import OutboxDelivery, OutboxMessage
from django_logic.outbox.publishers import Fate, Result, dead, failed, put_off, sent, unavailable
from django_logic.outbox.relay.claim import Claim, claim
from django_logic.outbox.relay.delivering import deliver
from django_logic.outbox.relay.draining import drain
from tests.outbox.deliveries import SUBSCRIBERS, Answering, change, fates, pass_time, row, write

pytestmark = pytest.mark.django_db(transaction=True)


def take(**options: Any) -> Claim:
    """
    Claim what is due.
    """
    return claim("default", SUBSCRIBERS, **options)


def on(*places: tuple[str, int], answer: Any) -> Any:
    """
    Answer or raise for these keys and numbers, and let the rest arrive.
    """

    def decide(event: Event) -> Result:
        if (event.key, event.payload["number"]) in places:
            if isinstance(answer, BaseException):
                raise answer
            return answer  # type: ignore[no-any-return]
        return sent()

    return decide


def test_everything_arrives_in_order_of_its_key() -> None:
    """
    Each call gets one message of a key at most, the oldest first.
    """
    write("a", "b", "a", "b", "a")
    publisher = Answering()

    while claimed := take():
        deliver("default", claimed, publisher)

    assert [place for place in publisher.told if place[0] == "a"] == [("a", 1), ("a", 3), ("a", 5)]
    assert [place for place in publisher.told if place[0] == "b"] == [("b", 2), ("b", 4)]
    assert all(len({event.key for event in batch}) == len(batch) for batch in publisher.batches)
    assert fates() == [("sent", 1)] * 5
    assert not OutboxDelivery.objects.filter(sent_at=None).exists()
    assert not OutboxDelivery.objects.filter(is_open=True).exists()


def test_batch_is_as_large_as_the_publisher_takes() -> None:
    """
    A publisher is given no more events at once than its batch_size.
    """
    write(*"abcde")
    publisher = Answering(batch_size=2)

    deliver("default", take(), publisher)

    assert [len(batch) for batch in publisher.batches] == [2, 2, 1]


def test_failure_of_one_key_is_its_own_only() -> None:
    """
    What failed pauses with its error; what was published beside it has arrived.
    """
    a, b, c = write("a", "b", "c")

    delivered = deliver("default", take(), Answering(on(("b", 2), answer=failed(OSError("no\x00route")))))

    assert delivered.fates == {Fate.SENT: 2, Fate.FAILED: 1}
    assert fates(a, b, c) == [("sent", 1), ("pending", 1), ("sent", 1)]
    assert row(b).error == "OSError: no\ufffdroute"
    assert row(b).next_attempt_at > row(b).created
    assert row(b).lease_token is None


def test_failure_within_a_run_lets_nothing_past(only_postgres: None) -> None:
    """
    What follows a failed message goes back without an attempt, and comes after it.
    """
    pks = write("a", "a", "a", "a", "b")
    publisher = Answering(on(("a", 2), answer=failed("no")))

    deliver("default", take(), publisher)

    assert publisher.told == [("a", 1), ("b", 5), ("a", 2)]
    assert fates(*pks) == [("sent", 1), ("pending", 1), ("pending", 0), ("pending", 0), ("sent", 1)]
    assert not take()
    pass_time(*pks[1:4])
    while claimed := take():
        deliver("default", claimed, publisher := Answering())
    assert fates(*pks) == [("sent", 1), ("sent", 2), ("sent", 1), ("sent", 1), ("sent", 1)]


@pytest.mark.parametrize("error", [OSError("no"), ValueError("bad"), KeyError("x")])
def test_publisher_that_raises_fails_the_event_it_raises_for(error: Exception, caplog: Any) -> None:
    """
    An exception counts as an attempt of the event that causes it; those of the same call are published apart.
    """
    pks = write(*"abc")

    with caplog.at_level(logging.CRITICAL, "django-logic.relay"):
        delivered = deliver("default", take(), Answering(on(("b", 2), answer=error), batch_size=2))

    assert delivered.outage == ""
    assert fates(*pks) == [("sent", 1), ("pending", 1), ("sent", 1)]
    assert row(pks[1]).error == f"{type(error).__name__}: {error}"


def test_publisher_that_raises_undeliverable_kills_one_event(caplog: Any) -> None:
    """
    Of a call with many events only the one it was raised for is dead.
    """
    pks = write(*"abcd")

    with caplog.at_level(logging.CRITICAL, "django-logic.relay"):
        deliver("default", take(), Answering(on(("c", 3), answer=Undeliverable("too large"))))

    assert fates(*pks) == [("sent", 1), ("sent", 1), ("dead", 1), ("sent", 1)]


@pytest.mark.parametrize("answer", [failed, unavailable])
def test_error_is_kept_whatever_it_says(answer: Callable[[str], Result]) -> None:
    """
    NUL and lone surrogates, as in names of files, keep no mark from being written and no attempt from going back.
    """
    pks = write(*"ab")

    deliver("default", take(), Answering(on(("b", 2), answer=answer("caf\udce9 \x00")), batch_size=1))

    assert row(pks[0]).state == "sent"
    assert (row(pks[1]).state, row(pks[1]).attempts) == ("pending", int(answer is failed))
    assert "caf" in row(pks[1]).error


def test_what_arrived_is_marked_whatever_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where a mark of one message can't be written, those that arrived before are not told again.
    """
    pks = write(*"ab")

    def break_down(*_arguments: Any) -> None:
        raise RuntimeError("the mark broke")

    monkeypatch.setattr("django_logic.outbox.relay.mark.mark_failed", break_down)
    with pytest.raises(RuntimeError, match="the mark broke"):
        deliver("default", take(), Answering(on(("b", 2), answer=failed("no")), batch_size=1))

    assert row(pks[0]).state == "sent"


def test_wrong_answer_shows_no_payload(caplog: Any) -> None:
    """
    A publisher that returns its events puts their payloads into no row and no log.
    """
    OutboxMessage.objects.create(topic="t", key="a", payload={"card": "4111-SECRET"})

    deliver("default", take(), Answering(lambda event: event))

    assert "Answering has to answer with a Result" in OutboxDelivery.objects.get().error
    assert "SECRET" not in OutboxDelivery.objects.get().error + caplog.text


@pytest.mark.parametrize("answer", [None, 7, [], [sent()], [sent(), sent(), sent()], ["sent", "sent"], [None, None]])
def test_publisher_that_answers_nonsense_fails_its_events(answer: Any, caplog: Any) -> None:
    """
    An answer that does not say the fate of each event counts as a failed attempt, and the relay goes on.
    """

    class Nonsense(Answering):
        def publish(self, events: Sequence[Event]) -> Sequence[Result]:
            return answer  # type: ignore[no-any-return]

    write("a", "b")

    with caplog.at_level(logging.CRITICAL, "django-logic.relay"):
        deliver("default", take(), Nonsense())

    assert fates() == [("pending", 1)] * 2
    assert all("Nonsense" in error for error in OutboxDelivery.objects.values_list("error", flat=True))


@pytest.mark.parametrize("answer", [Undeliverable("too large"), dead(Undeliverable("too large"))])
def test_hopeless_message_is_dead_at_once(answer: Any) -> None:
    """
    What can never be delivered is not tried again, whether the publisher says so or raises.
    """
    (pk,) = write("a")

    delivered = deliver("default", take(), Answering(on(("a", 1), answer=answer)))

    assert delivered.fates == {Fate.DEAD: 1}
    assert fates() == [("dead", 1)]
    assert row(pk).error == "Undeliverable: too large"


@pytest.mark.parametrize("answer", [BrokerUnavailable("away"), unavailable("away")])
def test_broker_that_is_away_costs_no_attempt(answer: Any) -> None:
    """
    What was published before stays so; the rest goes back at once, with the reason and as if never attempted.
    """
    pks = write(*"abcde")
    publisher = Answering(on(("c", 3), ("d", 4), answer=answer), batch_size=2)

    delivered = deliver("default", take(), publisher)

    assert delivered.outage == "away"
    assert len(publisher.batches) == 2
    assert fates(*pks) == [("sent", 1), ("sent", 1), ("pending", 0), ("pending", 0), ("pending", 0)]
    assert [row(pk).error for pk in pks] == ["", "", "away", "away", "away"]
    assert len(take().runs) == 3


def test_outage_of_one_event_spares_what_arrived_beside_it() -> None:
    """
    A publisher may say of one event that the broker went away: those before it have arrived.
    """
    write(*"abc")

    delivered = deliver("default", take(), Answering(on(("b", 2), answer=unavailable("away"))))

    assert delivered.outage == "away"
    assert fates() == [("sent", 1), ("pending", 0), ("sent", 1)]


def test_event_that_is_put_off_keeps_who_took_it() -> None:
    """
    Subscribers that took an event which was put off do not get it again, and nothing counts as an attempt.
    """
    (pk,) = write("a")

    deliver("default", take(), Answering(lambda event: put_off("away", frozenset({"x.one"}))))

    assert row(pk).handled == ["x.one"]
    assert not take()
    pass_time()
    ((item,),) = take().runs.values()
    assert item.event is not None
    assert (item.event.handled, item.event.attempt) == (frozenset({"x.one"}), 1)


def test_end_is_heard_between_calls() -> None:
    """
    Whoever wants an end gets it after the call that runs: what it published is marked, the rest goes back.
    """
    write(*"abc")
    publisher = Answering(batch_size=1)

    deliver("default", take(), publisher, lambda: len(publisher.batches) == 2)

    assert len(publisher.batches) == 2
    assert fates() == [("sent", 1), ("sent", 1), ("pending", 0)]


class Slow(Answering):
    """
    Take a part of the lease for each event, and call back before each answer.
    """

    def __init__(self, seconds: float, before: Any = lambda number: None) -> None:
        super().__init__(batch_size=1)
        self.seconds, self.before = seconds, before

    def publish(self, events: Sequence[Event]) -> Sequence[Result]:
        """
        Take time.
        """
        self.before(len(self.batches) + 1)
        threading.Event().wait(self.seconds)
        return super().publish(events)


def test_slow_publisher_keeps_its_lease(settings: Any) -> None:
    """
    Where publishing takes longer than a lease, that is renewed between calls, and nobody else gets the rest.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_LEASE_SECONDS": 1}
    write(*"abcd")
    others: list[Claim] = []
    publisher = Slow(0.45, before=lambda number: others.append(take()))

    delivered = deliver("default", take(), publisher)

    assert delivered.fates == {Fate.SENT: 4}
    assert not any(others)
    assert fates() == [("sent", 1)] * 4


def test_what_arrived_is_marked_before_a_lease_is_renewed(settings: Any) -> None:
    """
    A relay that dies late sends little again: what arrived is marked whenever the lease is looked at.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_LEASE_SECONDS": 1}
    write(*"abc")
    seen: list[int] = []
    publisher = Slow(0.45, before=lambda number: seen.append(OutboxDelivery.objects.filter(state="sent").count()))

    deliver("default", take(), publisher)

    assert seen == [0, 1, 2]


def test_lost_lease_ends_the_work(settings: Any, caplog: Any) -> None:
    """
    What another relay took over is left to it: nothing more is published, and its row is not touched.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_LEASE_SECONDS": 1}
    a, b, c = write(*"abc")
    heirs: list[Claim] = []

    def take_over(number: int) -> None:
        pass_time(b)
        heirs.append(take())

    publisher = Slow(0.45, before=take_over)
    with caplog.at_level(logging.WARNING, "django-logic.relay"):
        deliver("default", take(), publisher)

    assert publisher.told == [("a", 1)]
    assert row(a).state == "sent"
    assert (row(b).state, row(b).attempts, row(b).lease_token) == ("leased", 2, heirs[0].token)
    assert (row(c).state, row(c).attempts) == ("pending", 0)
    assert "A lease ran out under a slow publisher; 2 messages go back" in caplog.text


def test_lease_that_is_nearly_over_is_not_worked_under(settings: Any) -> None:
    """
    When one call took nearly the whole lease, nothing more is begun under it.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_LEASE_SECONDS": 1}
    write(*"ab")
    publisher = Slow(0.9)

    deliver("default", take(), publisher)

    assert publisher.told == [("a", 1)]
    assert fates() == [("sent", 1), ("pending", 0)]


def test_message_delivered_under_a_lost_lease_is_told(caplog: Any) -> None:
    """
    A relay that finds its lease lost when it marks says that others may deliver the same again.
    """
    (pk,) = write("a")
    claimed = take()

    with caplog.at_level(logging.WARNING, "django-logic.relay"):
        deliver("default", claimed, Answering(lambda event: (pass_time(), take(), sent())[2]))  # type: ignore[func-returns-value]

    assert fates(pk) == [("leased", 2)]
    assert "1 messages were delivered under a lease that is lost" in caplog.text


def test_delivery_of_a_deleted_message_is_dead() -> None:
    """
    A message that was deleted behind Django's back leaves a dead delivery that says so; nothing is published.
    """
    (pk,) = write("a")
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {OutboxMessage._meta.db_table}")
    publisher = Answering()

    deliver("default", take(), publisher)

    assert publisher.batches == []
    assert row(pk).state == "dead"
    assert row(pk).error.startswith("[gone]")
    assert not row(pk).is_open  # nobody waits for it


def test_message_that_kills_its_relays_is_dead_in_the_end(settings: Any) -> None:
    """
    Attempts whose relay died count; after the last one nobody tries again, and the row says how often that was.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_MAX_ATTEMPTS": 3}
    (pk,) = write("a")
    change(pk, handled=["shop.a"])
    for _ in range(3):
        assert take()
        pass_time()
    publisher = Answering()

    deliver("default", take(), publisher)

    assert publisher.batches == []
    assert fates(pk) == [("dead", 3)]
    assert row(pk).error.startswith("[lost] the relay that had it died or was frozen, 3 times.")
    assert row(pk).handled == ["shop.a"]


def test_attempts_are_counted_for_the_publisher_too() -> None:
    """
    An event says which attempt it is, in a run as at its head.
    """
    write("a", "a")
    attempts: list[int] = []

    def note(event: Event) -> Result:
        attempts.append(event.attempt)
        return failed("no") if event.attempt < 3 else sent()

    for _ in range(8):
        pass_time()
        deliver("default", take(), Answering(note))

    assert attempts == [1, 2, 3, 1, 2, 3]
    assert fates() == [("sent", 3)] * 2


def test_log_tells_no_payload(caplog: Any) -> None:
    """
    A line about a failure names topic, id and key, and never what is told.
    """
    OutboxMessage.objects.create(topic="parcel.told", key="a", payload={"number": 1, "secret": "hush"})

    with caplog.at_level(logging.INFO, "django-logic.relay"):
        deliver("default", take(), Answering(on(("a", 1), answer=failed("no"))))

    assert "parcel.told" in caplog.text
    assert "is failed after attempt 1: no" in caplog.text
    assert "hush" not in caplog.text


class AwayOnce(Answering):
    """
    Be away for one of the keys.
    """

    def __init__(self) -> None:
        super().__init__(on(("b", 2), answer=unavailable("away")))


def test_drain_leaves_a_broker_that_is_away(settings: Any) -> None:
    """
    Draining gives up on a destination that takes nothing, and goes on with the next one.
    """
    settings.DJANGO_LOGIC = {
        "OUTBOX_PUBLISHERS": {
            "away": {"BACKEND": f"{__name__}.AwayOnce"},
            "here": {"BACKEND": "tests.outbox.deliveries.Answering"},
        }
    }
    write("a", "b")

    assert drain("default") == 3
    assert drain("default", only=["here"]) == 0
    assert OutboxDelivery.objects.get(state="pending").destination == "away"


def test_drain_takes_more_than_one_claim_of_everything() -> None:
    """
    Draining goes on until nothing is due, however many keys there are.
    """
    OutboxMessage.objects.bulk_create(
        [OutboxMessage(topic="t", key=f"{number % 250}", payload={"number": number}) for number in range(750)]
    )

    assert drain("default") == 750
    assert set(fates()) == {("sent", 1)}


def test_lost_row_within_a_renewal_is_everybodys(settings: Any) -> None:
    """
    A message that was deleted under a slow publisher ends the claim, and what is left goes back for the next one.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_LEASE_SECONDS": 1}
    _a, b, c = write(*"abc")
    publisher = Slow(0.45, before=lambda number: OutboxDelivery.objects.filter(pk=b).delete())

    deliver("default", take(), publisher)

    assert publisher.told == [("a", 1)]
    assert fates(c) == [("pending", 0)]
    change(c, attempts=0)
