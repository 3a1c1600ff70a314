"""
Test who is told in Python: every subscriber of a topic, again only after its own failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, IntegrityError, connection, transaction

from django_logic.outbox import BrokerUnavailable, Undeliverable, relay, subscribe
from django_logic.outbox.event import Event
from django_logic.outbox.models import OutboxMessage
from django_logic.outbox.subscribers import forget, subscribers, subscribers_of
from tests.app.models import Product
from tests.outbox.deliveries import fates, pass_time, row, write

pytestmark = pytest.mark.django_db(transaction=True)


class Heard(list[tuple[str, Any]]):
    """
    Note who was told of what; names in ``failing`` raise what they are mapped to.
    """

    def __init__(self) -> None:
        self.failing: dict[str, BaseException] = {}
        self.made: list[Callable[..., Any]] = []

    def subscriber(self, name: str, *topics: str) -> Callable[[Event], None]:
        """
        Make and subscribe a function of this name.
        """

        def hear(event: Event) -> None:
            self.append((name, event.payload["number"]))
            if name in self.failing:
                raise self.failing[name]

        hear.__qualname__ = hear.__name__ = name
        self.made.append(hear)
        return subscribe(*topics or ("parcel.*",))(hear)


@pytest.fixture
def heard() -> Iterator[Heard]:
    """
    Give an empty list of what was told.
    """
    heard = Heard()
    yield heard
    for function in heard.made:
        forget(function)


@pytest.fixture(autouse=True)
def quiet(caplog: Any) -> None:
    """
    Show no failures that are meant.
    """
    caplog.set_level(logging.CRITICAL, "django-logic.relay")


def named(name: str) -> str:
    """
    Return how rows name a subscriber of this module.
    """
    return f"{__name__}.{name}"


def test_subscribers_are_told_in_the_order_they_subscribed(heard: Heard) -> None:
    """
    Each event goes to all subscribers of its topic, first come first told, before the next event.
    """
    for name in ("c", "a", "b"):
        heard.subscriber(name)
    heard.subscriber("elsewhere", "order.*", "parcel.sent")
    write("k", "k")

    assert relay.drain("default") == 2
    assert heard == [("c", 1), ("a", 1), ("b", 1), ("c", 2), ("a", 2), ("b", 2)]


@pytest.mark.parametrize(
    ("pattern", "is_told"),
    [
        ("parcel.told", True),
        ("parcel.*", True),
        ("*", True),
        ("*.told", True),
        ("Parcel.told", False),
        ("parcel", False),
    ],
)
def test_topics_are_patterns(heard: Heard, pattern: str, is_told: bool) -> None:
    """
    A topic is wanted to the letter, or by a pattern.
    """
    heard.subscriber("one", "never", pattern)
    write("k")

    relay.drain("default")

    assert heard == [("one", 1)] * is_told


def test_event_nobody_wants_is_sent() -> None:
    """
    An event without a subscriber waits for nobody.
    """
    write("k")

    assert relay.drain("default") == 1


def test_only_those_that_failed_are_told_again(heard: Heard) -> None:
    """
    One that fails keeps no other from the event, and who took it does not get it again.
    """
    for name in "abcd":
        heard.subscriber(name)
    heard.failing = {"b": ValueError("no ink"), "d": OSError("no paper")}
    (pk,) = write("k")

    assert relay.drain("default") == 0

    assert [name for name, _number in heard] == ["a", "b", "c", "d"]
    assert row(pk).handled == [named("a"), named("c")]
    assert row(pk).error.splitlines() == [f"{named('b')}: ValueError: no ink", f"{named('d')}: OSError: no paper"]
    del heard.failing["b"]
    heard.clear()
    pass_time()
    relay.drain("default")
    assert [name for name, _number in heard] == ["b", "d"]
    assert row(pk).handled == [named("a"), named("b"), named("c")]
    heard.failing.clear()
    heard.clear()
    pass_time()
    assert relay.drain("default") == 1
    assert [name for name, _number in heard] == ["d"]
    assert (fates(), row(pk).error) == ([("sent", 3)], "")


def test_hopeless_event_is_dead_after_all_were_told(heard: Heard) -> None:
    """
    One subscriber that can never take an event makes it dead; the others were told, and are not when it is replayed.
    """
    heard.subscriber("a")
    heard.subscriber("b")
    heard.failing = {"a": Undeliverable("no such order")}
    (pk,) = write("k")

    relay.drain("default")

    assert fates() == [("dead", 1)]
    assert row(pk).handled == [named("b")]
    heard.clear()
    relay.replay()
    relay.drain("default")
    assert [name for name, _number in heard] == ["a"]


def test_subscriber_that_finds_a_broker_away_costs_no_attempt(heard: Heard) -> None:
    """
    BrokerUnavailable puts the event back as if never tried; all others are told, and are not told again.
    """
    for name in "abc":
        heard.subscriber(name)
    heard.failing = {"b": BrokerUnavailable("away")}
    (pk,) = write("k")

    assert relay.drain("default") == 0
    assert (fates(), row(pk).error) == ([("pending", 0)], f"{named('b')}: away")
    heard.failing.clear()
    assert relay.drain("default") == 0  # not at once
    pass_time()
    assert relay.drain("default") == 1
    assert [name for name, _number in heard] == ["a", "b", "c", "b"]


def test_subscriber_that_finds_a_broker_away_holds_up_its_own_keys_only(heard: Heard) -> None:
    """
    What one function depends on pauses neither the destination nor other objects; behind it nothing overtakes.
    """

    def hear(event: Event) -> None:
        heard.append((event.key, event.payload["number"]))
        if event.key == "a":
            raise BrokerUnavailable("away")

    heard.made.append(subscribe("parcel.*")(hear))
    write("a", "a", *"bcdefgh")

    assert relay.drain("default") == 7
    assert [key for key, _number in heard] == list("abcdefgh")
    assert fates()[:2] == [("pending", 0), ("pending", 0)]


def test_failure_counts_beside_a_broker_that_is_away(heard: Heard) -> None:
    """
    An event that one subscriber could not take and another one failed for has spent an attempt.
    """
    for name in "ab":
        heard.subscriber(name)
    heard.failing = {"a": BrokerUnavailable("away"), "b": ValueError("no ink")}
    (pk,) = write("k")

    relay.drain("default")

    assert fates() == [("pending", 1)]
    assert row(pk).error == f"{named('a')}: away\n{named('b')}: ValueError: no ink"


def test_pause_of_an_event_that_was_put_off_is_never_nothing(heard: Heard, settings: Any) -> None:
    """
    Without pauses between attempts a drain still ends.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_RETRY_SECONDS": 0}
    heard.subscriber("a")
    heard.failing = {"a": BrokerUnavailable("away")}
    write("k")

    assert relay.drain("default") == 0
    assert heard == [("a", 1)]


def test_work_of_a_subscriber_is_its_own(heard: Heard) -> None:
    """
    No transaction is open around a subscriber: what it wrote before it failed stays.
    """
    open_ones: list[bool] = []

    def write_down(event: Event) -> None:
        open_ones.append(connection.in_atomic_block)
        Product.objects.create(name="kept")
        raise ValueError("no ink")

    heard.made.append(subscribe("parcel.*")(write_down))
    write("k")

    relay.drain("default")

    assert open_ones == [False]
    assert Product.objects.get().name == "kept"


def test_failure_of_a_statement_spoils_nothing(heard: Heard) -> None:
    """
    A database error of one subscriber is its failure; the next one and the marks work on.
    """

    def clash(event: Event) -> None:
        product = Product.objects.create(name="twice")
        with transaction.atomic():
            Product.objects.create(pk=product.pk, name="twice")

    heard.made.append(subscribe("parcel.*")(clash))
    heard.subscriber("next")
    (pk,) = write("k")

    relay.drain("default")

    assert heard == [("next", 1)]
    assert fates() == [("pending", 1)]
    assert IntegrityError.__name__ in row(pk).error


def test_failure_of_a_statement_within_a_transaction_spoils_nothing(heard: Heard) -> None:
    """
    The same where everything is drained within an open transaction, as tests do.
    """

    def clash(event: Event) -> None:
        product = Product.objects.create(name="twice")
        Product.objects.create(pk=product.pk, name="twice")

    heard.made.append(subscribe("parcel.*")(clash))
    heard.subscriber("next")

    with transaction.atomic():
        (pk,) = write("k")
        relay.drain("default")
        ends = fates()

    assert heard == [("next", 1)]
    assert ends == fates() == [("pending", 1)]
    assert IntegrityError.__name__ in row(pk).error


def test_subscriber_that_loses_its_connection_fails_alone(heard: Heard, only_postgres: None) -> None:
    """
    Where the server ended the connection within a subscriber, the next one and the marks get another one.
    """

    def lose(event: Event) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    heard.made.append(subscribe("parcel.*")(lose))

    def count(event: Event) -> None:
        heard.append(("count", Product.objects.count()))

    heard.made.append(subscribe("parcel.*")(count))
    (pk,) = write("k")

    relay.drain("default")

    assert heard == [("count", 0)]
    assert fates() == [("pending", 1)]
    assert row(pk).handled == [named(count.__qualname__)]


def test_subscriber_that_leaves_autocommit_off_loses_its_work_only(heard: Heard) -> None:
    """
    A subscriber that fails with a transaction of its own open takes no mark with it.
    """

    def half(event: Event) -> None:
        connection.set_autocommit(False)
        Product.objects.create(name="half")
        raise DatabaseError("no")

    heard.made.append(subscribe("parcel.*")(half))
    write("k")

    relay.drain("default")

    assert connection.get_autocommit() is True
    connection.close()
    assert fates() == [("pending", 1)]
    assert Product.objects.count() == 0


def test_subscriber_that_leaves_autocommit_off_and_returns_keeps_its_mark(heard: Heard) -> None:
    """
    What it did not commit is gone, and it is not told again for that.
    """

    def half(event: Event) -> None:
        connection.set_autocommit(False)
        Product.objects.create(name="half")

    heard.made.append(subscribe("parcel.*")(half))
    write("k")

    assert relay.drain("default") == 1

    connection.close()
    assert fates() == [("sent", 1)]
    assert Product.objects.count() == 0


def test_answer_that_nobody_runs_is_a_failure(heard: Heard) -> None:
    """
    A function that hands out a coroutine did not do its work.
    """

    async def later() -> None: ...

    def hand_out(event: Event) -> Any:
        return later()

    heard.made.append(subscribe("parcel.*")(hand_out))
    (pk,) = write("k")

    relay.drain("default")

    assert fates() == [("pending", 1)]
    assert "that nobody runs" in row(pk).error


def test_async_function_and_generator_are_refused_at_once() -> None:
    """
    What would not run is refused where it subscribes.
    """

    async def later(event: Event) -> None: ...

    def piecemeal(event: Event) -> Iterator[int]:
        yield 1

    known = subscribers()
    for function in (later, piecemeal, partial(later)):
        with pytest.raises(ImproperlyConfigured, match="a subscriber is a plain function"):
            subscribe("parcel.*")(function)

    assert subscribers() == known


@pytest.mark.parametrize("topics", [(), ("",), (7,), (["parcel.*"],), (len,)])
def test_subscribing_to_nothing_is_refused(topics: Any) -> None:
    """
    A decorator without topics, or without brackets, is refused.
    """
    with pytest.raises(ImproperlyConfigured, match=r"Write @subscribe\(\"order\.fulfilled\"\)"):
        subscribe(*topics)


def test_one_function_may_subscribe_twice(heard: Heard) -> None:
    """
    Decorators may be stacked: the function gets the topics of all, each event once.
    """

    @subscribe("parcel.*")
    @subscribe("order.*", "parcel.told")
    def note(event: Event) -> None:
        heard.append((event.topic, 1))

    heard.made.append(note)
    write("k")
    write("k", topic="order.paid")

    relay.drain("default")

    assert heard == [("parcel.told", 1), ("order.paid", 1)]


def test_two_functions_of_one_name_are_refused(heard: Heard) -> None:
    """
    A name stands for one function: the second one would take the place of the first, and rows could not tell them.
    """
    heard.subscriber("one")

    def other(event: Event) -> None: ...

    other.__qualname__ = "one"

    with pytest.raises(ImproperlyConfigured, match=r"test_local_subscribers\.one: another function of this name"):
        subscribe("parcel.*")(other)
    assert [entry.name for entry in subscribers_of("parcel.told")] == [named("one")]


def test_module_that_is_loaded_again_takes_its_places_back(heard: Heard) -> None:
    """
    The same function made anew takes the place of the old one.
    """
    first, second = heard.subscriber("one"), heard.subscriber("one")

    assert first is not second
    assert [entry.function for entry in subscribers_of("parcel.told")] == [second]


def test_callable_without_a_name_is_known_by_its_class(heard: Heard) -> None:
    """
    An object that can be called, and a function with arguments filled in, may subscribe too.
    """

    class Sink:
        def __call__(self, event: Event) -> None:
            heard.append(("sink", event.payload["number"]))

    def add(what: str, event: Event) -> None:
        heard.append((what, event.payload["number"]))

    for function in (Sink(), partial(add, "filled")):
        heard.made.append(subscribe("parcel.*")(function))
    write("k")

    relay.drain("default")

    assert heard == [("sink", 1), ("filled", 1)]


def test_forgotten_function_is_told_no_more(heard: Heard) -> None:
    """
    After `forget` nothing is called.
    """
    forget(heard.subscriber("one"))
    OutboxMessage.objects.create(topic="parcel.told", payload={"number": 1})

    relay.drain("default")

    assert heard == []
