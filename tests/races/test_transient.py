"""
Prove that a database which gives way to somebody else is told as "temporarily unavailable", with nothing written.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError

from django_logic import Transition
from django_logic.exceptions import TransitionTemporarilyUnavailable
from tests.app.hooked import Diary, fresh, hooked, moves, nothing, stored
from tests.app.models import Product, Ticket
from tests.races.together import PATIENCE, Worker, execute, needs_visible_waits, until

pytestmark = pytest.mark.django_db(transaction=True)

#: How a session asks to wait for nobody longer than a moment.
SHORT_WAIT = {
    "postgresql": "SET lock_timeout = '50ms'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",
    "sqlite": "PRAGMA busy_timeout = 50",
}


@contextmanager
def row_held(ticket: Ticket) -> Iterator[None]:
    """
    Have another session hold a row, on SQLite the whole database, for as long as the block lasts.
    """
    reached, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            Ticket.objects.filter(pk=ticket.pk).update(note="held")
            reached.set()
            assert may_end.wait(PATIENCE)

    worker = Worker(hold)
    assert reached.wait(PATIENCE)
    try:
        yield
    finally:
        may_end.set()
        worker.result()


@pytest.fixture
def diary() -> Diary:
    """
    Give an empty diary.
    """
    return Diary()


@pytest.fixture
def ticket() -> Ticket:
    """
    Give a saved object in its first state.
    """
    return Ticket.objects.create()


@pytest.mark.parametrize("effects", [[], [nothing]])
def test_a_lock_timeout_is_temporary(effects: list[Any], ticket: Ticket) -> None:
    """
    A wait the database cuts short (lock_timeout, innodb_lock_wait_timeout, "database is locked") is no crash.
    """

    def call() -> Any:
        execute(SHORT_WAIT[connection.vendor])
        copy = Ticket(pk=ticket.pk, state="new")
        copy._state.adding, copy._state.db = False, "default"
        return copy.probe.go()

    with hooked(Transition("go", ["new"], "done", side_effects=effects)):
        with row_held(ticket):
            outcome = Worker(call).join()
        moved = ticket.probe.go()

    assert isinstance(outcome.error, TransitionTemporarilyUnavailable)
    assert outcome.error.reason == "locked"
    assert moved is True


def test_a_lock_timeout_spares_the_callers_transaction(ticket: Ticket) -> None:
    """
    A caller who catches it keeps his own work.
    """
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer: the caller's own work would be the lock")
    note = Ticket.objects.create()

    def call() -> None:
        execute(SHORT_WAIT[connection.vendor])
        with transaction.atomic():
            Ticket.objects.filter(pk=note.pk).update(note="before")
            with pytest.raises(TransitionTemporarilyUnavailable):
                fresh(ticket).process.publish()
            Ticket.objects.filter(pk=note.pk).update(state="after")

    with row_held(ticket):
        Worker(call).result()

    assert (stored(note, "note"), stored(note)) == ("before", "after")


def test_a_lock_timeout_in_a_side_effect_is_temporary(diary: Diary, ticket: Ticket) -> None:
    """
    A side effect that waits in vain for somebody's row: temporary, nothing written, failed_state neither.
    """
    if connection.vendor == "sqlite":
        pytest.skip("SQLite's side effects hold the only write lock")
    other = Ticket.objects.create()

    def write_other(instance: Any, **kwargs: Any) -> None:
        Product.objects.create(name="written")
        Ticket.objects.filter(pk=other.pk).update(note="mine")

    slots = {"failed_state": "failed", "failure_callbacks": [diary.hook("failure")]}

    def call() -> Any:
        execute(SHORT_WAIT[connection.vendor])
        return fresh(ticket).probe.go()

    with hooked(Transition("go", ["new"], "done", side_effects=[write_other], **slots)):
        with row_held(other):
            outcome = Worker(call).join()
        chain = moves(ticket)

    assert isinstance(outcome.error, TransitionTemporarilyUnavailable)
    assert diary == [("failure", "new", outcome.error)]
    assert (stored(ticket), chain) == ("new", [])
    assert not Product.objects.exists()


def test_a_real_deadlock_is_temporary_for_one_and_nothing_for_the_other() -> None:
    """
    Two calls that take each other's row: the database ends one, which is told to try again; the other moves.
    """
    needs_visible_waits()
    one, two = Ticket.objects.create(), Ticket.objects.create()
    both_hold = threading.Barrier(2)

    def touch_other(instance: Any, other: Ticket, **kwargs: Any) -> None:
        Product.objects.create(name=f"for {instance.pk}")
        both_hold.wait(PATIENCE)
        Ticket.objects.filter(pk=other.pk).update(note="touched")

    way = Transition("go", ["new"], "done", side_effects=[touch_other], failed_state="failed")
    with hooked(way):
        workers = [Worker(lambda a=a, b=b: fresh(a).probe.go(other=b)) for a, b in [(one, two), (two, one)]]
        outcomes = [worker.join() for worker in workers]
        chains = [moves(one), moves(two)]

    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert [type(error) for error in errors] == [TransitionTemporarilyUnavailable]
    assert errors[0].http_status == 503
    assert [outcome.value for outcome in outcomes].count(True) == 1
    assert sorted(chains) == [[], [("new", "done")]]
    assert sorted([stored(one), stored(two)]) == ["done", "new"]
    assert Product.objects.count() == 1


def test_a_deadlock_costs_the_callers_transaction_what_the_database_takes() -> None:
    """
    A caller who catches it keeps his own work on PostgreSQL; InnoDB has undone all of it, and he can't go on as if not.
    """
    needs_visible_waits()
    one, two = Ticket.objects.create(), Ticket.objects.create()
    both_hold = threading.Barrier(2)

    def call(first: Ticket, second: Ticket) -> str:
        with transaction.atomic():
            Product.objects.create(name="before")
            fresh(first).process.publish()
            both_hold.wait(PATIENCE)
            try:
                fresh(second).process.publish()
            except TransitionTemporarilyUnavailable:
                Product.objects.create(name="after")
                return "busy"
        return "went through"

    workers = [Worker(lambda a=a, b=b: call(a, b)) for a, b in [(one, two), (two, one)]]
    outcomes = [worker.join() for worker in workers]

    names = sorted(Product.objects.values_list("name", flat=True))
    if connection.vendor == "postgresql":
        assert sorted(str(outcome.value) for outcome in outcomes) == ["busy", "went through"]
        assert names == ["after", "before", "before"]
    else:
        assert [outcome.value for outcome in outcomes].count("went through") == 1
        assert [type(outcome.error) for outcome in outcomes if outcome.error] == [TransactionManagementError]
        assert names == ["before"]
    assert moves(one, "process") == moves(two, "process") == [("new", "published")]


def test_nowait_on_sqlite_is_busy_at_once(ticket: Ticket) -> None:
    """
    SQLite's writer makes a nowait call busy at once, not after the time-out that other calls wait.
    """
    if connection.vendor != "sqlite":
        pytest.skip("the promise is about SQLite's one writer")

    def call() -> Any:
        execute("PRAGMA busy_timeout = 20000")
        return fresh(ticket).probe.go()

    with hooked(Transition("go", ["new"], "done", lock="nowait")), row_held(ticket):
        worker = Worker(call)
        until(lambda: worker.outcome.error is not None, seconds=5)

    assert isinstance(worker.join().error, TransitionTemporarilyUnavailable)
