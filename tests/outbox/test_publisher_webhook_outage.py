"""
Prove that a receiver that says it is away or busy costs no attempts, unless an event is to blame, and gets its rest.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from django_logic.outbox.event import Event
from django_logic.outbox.publishers import Fate
from django_logic.outbox.relay.claim import Place, claim
from django_logic.outbox.relay.delivering import deliver
from tests.outbox import deliveries
from tests.outbox.receivers import Handler, Receiver, wait_for
from tests.outbox.webhooks import FIXTURES, MOST_MET, Make, error_of, event, fates, httpx, rest_after

pytest_plugins = [FIXTURES]

#: As many times as an event is tried at most in the tests' settings, and more.
MANY = 15


def answering(receiver: Receiver, status: int, *poison: Event, **headers: str) -> Callable[[Handler], None]:
    """
    Return an answer of this status to some events, or to all if none is named.
    """
    named = {str(told.id) for told in poison}

    def answer(handler: Handler) -> None:
        number = receiver.requests[-1].headers["webhook-id"]
        if named and number not in named:
            return handler.reply(200)
        handler.reply(status, **headers)

    return answer


@pytest.fixture
def work(transactional_db: None, webhook: Make) -> Callable[[], None]:
    """
    Give a turn of a relay: claim what is pending, whatever its pause, and deliver it to the receiver.
    """
    publisher, suspects = webhook(), set[Place]()

    def turn() -> None:
        deliveries.pass_time()
        deliver("default", claim("default", deliveries.SUBSCRIBERS), publisher, suspects=suspects)

    return turn


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_outage_that_is_told_costs_no_attempt(status: int, receiver: Receiver, work: Callable[[], None]) -> None:
    """
    However often a receiver says that it is away, all events arrive with their first attempt when it is back.
    """
    deliveries.write("a", "b", "a")
    receiver.answer = lambda handler: handler.reply(status)

    for _ in range(MANY):
        work()
    during = deliveries.fates()
    receiver.answer = lambda handler: handler.reply(200)
    work()
    work()

    assert during == [("pending", 0)] * 3
    assert len(receiver.requests) >= MANY + 3
    assert deliveries.fates() == [("sent", 1)] * 3


@pytest.mark.parametrize(
    ("status", "end"), [(502, ("dead", 10)), (504, ("dead", 10)), (503, ("pending", 0)), (429, ("pending", 0))]
)
def test_event_that_is_refused_while_others_arrive_stops_nobody(
    status: int, end: tuple[str, int], receiver: Receiver, work: Callable[[], None]
) -> None:
    """
    An event that a proxy answers for each time spends its attempts, one that a receiver has no time for waits.
    """
    (poison,) = deliveries.write("poison")

    def answer(handler: Handler) -> None:
        handler.reply(status if b'"poison"' in receiver.requests[-1].body else 200)

    receiver.answer = answer

    for number in range(MANY):
        deliveries.write(f"other-{number}")
        work()

    assert deliveries.fates(poison) == [end]
    assert deliveries.fates()[1:] == [("sent", 1)] * MANY
    assert deliveries.row(poison).error == f"127.0.0.1 answered {status}."


@pytest.mark.parametrize("status", [502, 504])
def test_proxy_blames_an_event_only_while_others_are_taken(status: int, receiver: Receiver, webhook: Make) -> None:
    """
    Each time a proxy's answer costs an attempt, another event has been taken since the one before.
    """
    publisher, poison = webhook(), event()
    receiver.answer = answering(receiver, status, poison)

    told = [poison, poison, event(), poison, poison, event(), event(), poison, poison]
    found = [fates(publisher, each) for each in told]

    away, taken, blamed = [Fate.UNAVAILABLE], [Fate.SENT], [Fate.FAILED]
    assert found == [away, away, taken, blamed, away, taken, taken, blamed, away]


def test_event_that_arrived_is_not_blamed_for_what_was_before(receiver: Receiver, webhook: Make) -> None:
    """
    An event that is posted again after it arrived starts anew.
    """
    publisher, late = webhook(), event()
    receiver.answer = lambda handler: handler.reply(502 if len(receiver.requests) in (1, 4) else 200)

    found = [fates(publisher, each) for each in (late, event(), late, late)]

    assert found == [[Fate.UNAVAILABLE], [Fate.SENT], [Fate.SENT], [Fate.UNAVAILABLE]]


def test_long_outage_is_not_remembered_whole(receiver: Receiver, webhook: Make) -> None:
    """
    Of many events that met a proxy's answer only the last ones can be blamed later, so that memory has an end.
    """
    publisher, first, last = webhook(), event(), event()
    receiver.answer = lambda handler: handler.reply(502)
    for told in (first, *(event() for _ in range(MOST_MET - 1)), last):
        assert fates(publisher, told) == [Fate.UNAVAILABLE]
    receiver.answer = answering(receiver, 502, first, last)

    found = [fates(publisher, told) for told in (event(), last, first)]

    assert found == [[Fate.SENT], [Fate.FAILED], [Fate.UNAVAILABLE]]


@pytest.mark.parametrize(("status", "then"), [(429, Fate.UNAVAILABLE), (503, Fate.PUT_OFF)])
def test_overloaded_receiver_costs_no_attempt(status: int, then: Fate, receiver: Receiver, webhook: Make) -> None:
    """
    Who sheds load takes some events and refuses others; what is refused while others are taken waits alone at most.
    """
    publisher, unlucky = webhook(), event()
    receiver.answer = answering(receiver, status, unlucky)

    found = [fates(publisher, each) for each in (unlucky, event(), unlucky, unlucky, event(), unlucky)]

    away, taken = [Fate.UNAVAILABLE], [Fate.SENT]
    assert found == [away, taken, [then], away, taken, [then]]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_receiver_is_left_alone_for_as_long_as_it_asks(status: int, receiver: Receiver, webhook: Make) -> None:
    """
    Until then nothing is posted, and the reason is told; what can't be written is dead all the same.
    """
    publisher = webhook()
    receiver.answer = answering(receiver, status, Retry_After="120")

    first, rest = fates(publisher, event()), error_of(publisher)
    unwritable = fates(publisher, event(topic=""))

    assert (first, unwritable) == ([Fate.UNAVAILABLE], [Fate.DEAD])
    assert rest[0] is Fate.UNAVAILABLE
    assert rest[1].startswith("127.0.0.1 asked to be left alone, for another 1")
    assert len(receiver.requests) == 1


def test_receiver_gets_events_after_the_rest_it_asked_for(receiver: Receiver, webhook: Make) -> None:
    """
    The first event after that time is posted.
    """
    publisher = webhook()
    receiver.answer = answering(receiver, 503, Retry_After="1")
    before = fates(publisher, event())
    receiver.answer = lambda handler: handler.reply(200)

    wait_for(lambda: fates(publisher, event()) == [Fate.SENT], "the end of the rest")

    assert before == [Fate.UNAVAILABLE]
    assert len(receiver.requests) == 2


@pytest.mark.parametrize("status", [200, 410, 422, 500])
def test_other_answers_ask_for_no_rest(status: int, receiver: Receiver, webhook: Make) -> None:
    """
    A `Retry-After` beside an answer about one event keeps no other waiting.
    """
    publisher = webhook()
    receiver.answer = answering(receiver, status, Retry_After="120")

    fates(publisher, event(), event())

    assert len(receiver.requests) == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 0),
        ("7", 7),
        ("0", 0),
        ("-7", 0),
        ("nan", 0),
        ("soon", 0),
        ("900", 900),
        ("901", 900),
        ("9" * 5000, 900),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 9998 07:28:00 GMT", 900),
        ("Wed, 99 Oct 99999 07:28:00 GMT", 0),
    ],
)
def test_rest_is_no_longer_than_a_quarter_of_an_hour(text: str, seconds: int) -> None:
    """
    Whatever stands in a `Retry-After`, the receiver is asked again soon.
    """
    assert rest_after(httpx.Response(503, headers={"Retry-After": text})) == seconds


def test_rest_may_be_given_as_a_time() -> None:
    """
    HTTP knows seconds and dates; a date is counted from now.
    """
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=300), usegmt=True)

    found: Any = rest_after(httpx.Response(503, headers={"Retry-After": until}))

    assert 290 < found <= 300
