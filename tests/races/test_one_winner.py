"""
Prove that of many callers one moves the object, and that the others hear the truth.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F

from django_logic import Action, Transition
from django_logic.exceptions import InvalidTransition, TransitionTemporarilyUnavailable
from tests.app.hooked import fresh, hooked, moves, sequences, stored
from tests.app.models import Item, Order, Product, Saved, Ticket
from tests.races.together import PATIENCE, Worker, execute, needs_visible_waits, together

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 8


def take_one(instance: Any, product: Product, **kwargs: Any) -> None:
    """
    Take one piece of a product.
    """
    Product.objects.filter(pk=product.pk).update(stock=F("stock") - 1)


class Pause:
    """
    A side effect that tells that it runs, and goes on when it may.
    """

    def __init__(self) -> None:
        self.reached, self.may_go_on = threading.Event(), threading.Event()
        self.runs = 0

    def __call__(self, instance: Any, **kwargs: Any) -> None:
        self.runs += 1
        self.reached.set()
        assert self.may_go_on.wait(PATIENCE)


@pytest.mark.parametrize("model", [Ticket, Saved])
@pytest.mark.parametrize("lock", ["row", "cache"])
def test_one_of_many_callers_moves_and_works(request: pytest.FixtureRequest, lock: str, model: Any) -> None:
    """
    N threads run one transition: one True, one effect, one history row; the others get False or busy.
    """
    if lock == "cache":
        request.getfixturevalue("redis_cache")
    product = Product.objects.create(stock=10)
    ticket = model.objects.create()
    copies = [fresh(ticket) for _ in range(THREADS)]

    with hooked(Transition("go", ["new"], "done", side_effects=[take_one], lock=lock), model=model):
        outcomes = together([lambda copy=copy: copy.probe.go(product=product) for copy in copies])
        chain = moves(ticket)

    assert [outcome.value for outcome in outcomes].count(True) == 1
    assert stored(product, "stock") == 9
    assert chain == [("new", "done")]
    losers = [outcome for outcome in outcomes if outcome.value is not True]
    if lock == "row":
        assert [(loser.value, loser.error) for loser in losers] == [(False, None)] * (THREADS - 1)
        assert {copy.state for copy in copies} == {"done"}
    else:
        assert all(
            loser.value is False or isinstance(loser.error, TransitionTemporarilyUnavailable) for loser in losers
        )


@pytest.mark.parametrize("model", [Ticket, Saved])
def test_one_of_many_callers_moves_without_hooks(model: Any) -> None:
    """
    The same holds where nothing runs under the lock: one True, N-1 False, one history row.
    """
    ticket = model.objects.create()
    copies = [fresh(ticket) for _ in range(THREADS)]

    outcomes = together([copy.process.publish for copy in copies])

    assert sorted((outcome.value for outcome in outcomes), key=str) == [False] * (THREADS - 1) + [True]
    assert moves(ticket, "process") == [("new", "published")]
    assert {copy.state for copy in copies} == {"published"}


def test_many_callers_of_one_action_take_turns() -> None:
    """
    An action is never a duplicate: each of N threads runs it, one after the other.
    """
    running, overlaps = threading.Lock(), []

    def alone(instance: Any, **kwargs: Any) -> None:
        overlaps.append(not running.acquire(blocking=False))
        Product.objects.filter(pk=product.pk).update(stock=F("stock") - 1)
        running.release()

    product, ticket = Product.objects.create(stock=10), Ticket.objects.create()
    copies = [fresh(ticket) for _ in range(THREADS)]

    with hooked(Action("work", ["new"], side_effects=[alone])):
        outcomes = together([lambda copy=copy: copy.probe.work() for copy in copies])

    assert [outcome.value for outcome in outcomes] == [True] * THREADS
    assert overlaps == [False] * THREADS
    assert stored(product, "stock") == 10 - THREADS


def test_two_targets_from_one_source_make_no_impossible_edge() -> None:
    """
    Archive and activate race from one state: one happens, the other is refused on what it finds.
    """
    ticket = Ticket.objects.create()
    archive, activate = Transition("archive", ["new"], "archived"), Transition("activate", ["new"], "active")
    one, two = fresh(ticket), fresh(ticket)

    with hooked(archive, activate):
        outcomes = together([lambda: one.probe.archive(), lambda: two.probe.activate()])
        chain = moves(ticket)

    assert chain == [("new", stored(ticket))]
    assert [outcome.value for outcome in outcomes].count(True) == 1
    (refused,) = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert isinstance(refused, InvalidTransition)
    assert refused.current_state == stored(ticket)
    assert one.state == two.state == stored(ticket)


@pytest.mark.parametrize("action", ["go", "leave"])
def test_the_waiting_caller_is_judged_on_what_it_finds(action: str) -> None:
    """
    Who waited for the lock re-reads: False where the object has arrived, a refusal where it can't go on.
    """
    needs_visible_waits()
    pause = Pause()
    ticket = Ticket.objects.create()
    first, second = fresh(ticket), fresh(ticket)
    ways = [Transition("go", ["new"], "done", side_effects=[pause]), Transition("leave", ["new"], "left")]

    with hooked(*ways):
        winner = Worker(lambda: first.probe.go())
        assert pause.reached.wait(PATIENCE)
        loser = Worker(lambda: getattr(second.probe, action)())
        loser.until_it_waits()
        pause.may_go_on.set()
        won, lost = winner.join(), loser.join()

    assert won.value is True
    assert pause.runs == 1
    assert stored(ticket) == second.state == "done"
    if action == "go":
        assert lost.value is False
    else:
        assert isinstance(lost.error, InvalidTransition)
        assert lost.error.current_state == "done"


@pytest.mark.parametrize("way", ["plain", "work", "cache"])
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_callers_open_transaction_makes_the_second_caller_wait(
    ends: str, way: str, request: pytest.FixtureRequest
) -> None:
    """
    A move inside an open transaction is seen or forgotten as a whole: the second caller waits and never repeats it.
    """
    needs_visible_waits()
    if way == "cache":
        request.getfixturevalue("redis_cache")
    effects: list[int] = []
    hooks = [] if way == "plain" else [lambda instance, **kwargs: effects.append(instance.pk)]
    ticket = Ticket.objects.create()
    first, second = fresh(ticket), fresh(ticket)

    with hooked(Transition("go", ["new"], "done", side_effects=hooks, lock="cache" if way == "cache" else None)):
        with transaction.atomic():
            assert first.probe.go() is True
            waiting = Worker(lambda: second.probe.go())
            waiting.until_it_waits()
            transaction.set_rollback(ends == "rollback")
        moved = waiting.result()
        chain = moves(ticket)

    assert moved is (ends == "rollback")
    assert chain == [("new", "done")]
    assert stored(ticket) == second.state == "done"
    assert len(effects) == (0 if way == "plain" else 2 if ends == "rollback" else 1)


def test_on_sqlite_the_second_caller_waits_for_the_writer() -> None:
    """
    SQLite takes the write lock before it reads, so a second caller waits instead of failing as it upgrades.
    """
    if connection.vendor != "sqlite":
        pytest.skip("the promise is about SQLite's one writer")
    ticket = Ticket.objects.create()
    second = fresh(ticket)
    about_to_call = threading.Event()

    def call() -> bool:
        about_to_call.set()
        return bool(second.probe.go())

    with hooked(Transition("go", ["new"], "done", side_effects=[lambda instance, **kwargs: None])):
        with transaction.atomic():
            assert ticket.probe.go() is True
            waiting = Worker(call)
            assert about_to_call.wait(PATIENCE)
        moved = waiting.result()
        chain = moves(ticket)

    assert moved is False
    assert chain == [("new", "done")]


def test_different_objects_do_not_wait_for_each_other() -> None:
    """
    The lock is on the row: while one object is worked on, another one moves.
    """
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer for the whole database")
    pause = Pause()
    slow, quick = Ticket.objects.create(), Ticket.objects.create()

    with hooked(
        Transition("go", ["new"], "done", side_effects=[pause]),
        Transition("jump", ["new"], "done", side_effects=[lambda instance, **kwargs: None]),
    ):
        worker = Worker(lambda: slow.probe.go())
        assert pause.reached.wait(PATIENCE)
        jumped = quick.probe.jump()
        pause.may_go_on.set()
        went = worker.result()

    assert (jumped, went) == (True, True)


def test_rows_that_refer_to_the_object_can_be_added_while_it_is_worked_on() -> None:
    """
    The lock keeps others from moving or changing the row, not from inserting rows that point at it.
    """
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL has a row lock that foreign keys may pass")
    pause = Pause()
    order, product = Order.objects.create(), Product.objects.create()

    with hooked(Transition("go", ["draft"], "done", side_effects=[pause]), model=Order, field="status"):
        worker = Worker(lambda: fresh(order).probe.go())
        assert pause.reached.wait(PATIENCE)
        execute("SET lock_timeout = '2s'")
        try:
            item = Item.objects.create(order=order, product=product)
        finally:
            pause.may_go_on.set()
            went = worker.result()

    assert went is True
    assert Item.objects.filter(pk=item.pk).exists()


def test_callers_of_a_cycle_leave_an_unbroken_chain() -> None:
    """
    Threads that move one row away and back, with work under the lock, never break its history.
    """
    nothing: list[Callable[..., Any]] = [lambda instance, **kwargs: None]
    ticket = Ticket.objects.create()
    ways = [Transition("there", ["a", "new"], "b", side_effects=nothing), Transition("back", ["b"], "a")]

    def wander() -> int:
        copy = fresh(ticket)
        moved = 0
        for name in ["there", "back"] * 6:
            try:
                moved += getattr(copy.probe, name)()
            except InvalidTransition:
                continue
        return moved

    with hooked(*ways):
        outcomes = together([wander] * 4)
        chain, numbers = moves(ticket), sequences(ticket)

    assert [outcome.error for outcome in outcomes] == [None] * 4
    assert numbers == list(range(1, len(numbers) + 1))
    assert sum(outcome.value for outcome in outcomes) == len(chain)
    assert [start for start, _ in chain] == ["new", *[end for _, end in chain[:-1]]]
    assert chain[-1][1] == stored(ticket)
