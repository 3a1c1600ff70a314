"""
Prove what an action promises: work on an object that changes no state.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from django.core.cache import cache
from django.db import DatabaseError, IntegrityError, connection, transaction

from django_logic import Action, Transition
from django_logic.exceptions import InvalidTransition
from django_logic.models import AuditEntry
from tests.app.hooked import Boom, all_records, fail, fresh, hooked, lock_key, moves, stored
from tests.app.models import Product, Ticket
from tests.races.together import PATIENCE, Worker

pytestmark = pytest.mark.django_db(transaction=True)


def swallow_a_database_error(instance: Any, **kwargs: Any) -> None:
    """
    Write, run into a database error, and go on as if nothing had happened.
    """
    product = Product.objects.create(name="written")
    with contextlib.suppress(IntegrityError):
        Product.objects.create(pk=product.pk)


def guard_a_database_error(instance: Any, **kwargs: Any) -> None:
    """
    The same with a savepoint of its own.
    """
    product = Product.objects.create(name="written")
    try:
        with transaction.atomic():
            Product.objects.create(pk=product.pk)
    except IntegrityError:
        pass


@pytest.fixture
def ticket() -> Ticket:
    """
    Give a saved object in its first state.
    """
    return Ticket.objects.create()


def test_an_action_works_without_a_record(ticket: Ticket, settings: Any) -> None:
    """
    An action returns True every time, changes no state, writes no history, and an audit entry where asked to.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    ran: list[int] = []

    with hooked(Action("work", ["new"], side_effects=[lambda instance, **kwargs: ran.append(instance.pk)])):
        results = [ticket.probe.work(), ticket.probe.work()]

    assert results == [True, True]
    assert ran == [ticket.pk] * 2
    assert stored(ticket) == "new"
    assert all_records() == 0
    assert list(AuditEntry.objects.values_list("outcome", flat=True)) == ["done", "done"]


def test_an_action_from_another_state_is_refused(ticket: Ticket) -> None:
    """
    An action is never a duplicate: out of its sources it is refused.
    """
    with hooked(Action("work", ["done"]), Transition("go", ["new"], "done")), pytest.raises(InvalidTransition):
        ticket.probe.work()


def test_an_action_that_swallowed_a_database_error_has_failed(ticket: Ticket) -> None:
    """
    A database error that a side effect swallowed discards its writes, so the action must not report success.
    """
    with hooked(Action("work", ["new"], side_effects=[swallow_a_database_error])):
        error = None
        try:
            ticket.probe.work()
        except DatabaseError as raised:
            error = raised

    assert (error is None) == Product.objects.filter(name="written").exists()


def test_an_action_that_guarded_its_database_error_has_worked(ticket: Ticket) -> None:
    """
    With a savepoint of its own around the failing statement the action succeeds and keeps its writes.
    """
    with hooked(Action("work", ["new"], side_effects=[guard_a_database_error])):
        worked = ticket.probe.work()

    assert worked is True
    assert Product.objects.count() == 1


def test_a_failing_action_writes_failed_state(ticket: Ticket) -> None:
    """
    failed_state of an action is a move like any other.
    """
    with hooked(Action("work", ["new"], side_effects=[fail], failed_state="failed")):
        with pytest.raises(Boom):
            ticket.probe.work()
        chain = moves(ticket)

    assert chain == [("new", "failed")]
    assert ticket.state == stored(ticket) == "failed"


def test_memory_equals_the_database_whatever_a_hook_assigned(ticket: Ticket) -> None:
    """
    A state that a hook only put on the instance is gone when the action ends.
    """

    def pretend(instance: Any, **kwargs: Any) -> None:
        instance.state = "pretended"

    with hooked(Action("work", ["new"], side_effects=[pretend])):
        ticket.probe.work()

    assert ticket.state == stored(ticket) == "new"


def test_an_action_without_lock_ignores_who_holds_the_object(ticket: Ticket, redis_cache: None) -> None:
    """
    lock="none" takes no lock: it works while another call holds the row or the state lock.
    """
    reached, may_end = threading.Event(), threading.Event()

    def occupy(instance: Any, **kwargs: Any) -> None:
        reached.set()
        assert may_end.wait(PATIENCE)

    with hooked(Action("occupy", ["new"], side_effects=[occupy]), Action("work", ["new"], lock="none")):
        worker = Worker(lambda: fresh(ticket).probe.occupy())
        assert reached.wait(PATIENCE)
        cache.set(lock_key(ticket), "held")
        worked = ticket.probe.work()
        may_end.set()
        worker.join()

    assert worked is True


def test_a_failing_action_without_lock_respects_a_held_state_lock(ticket: Ticket, redis_cache: None) -> None:
    """
    failed_state is written only under a lock of its own: held elsewhere, the lock and the state stay as they are.
    """
    failures: list[Any] = []
    way = Action(
        "work",
        ["new"],
        side_effects=[fail],
        failed_state="failed",
        lock="none",
        failure_callbacks=[lambda instance, exception, **kwargs: failures.append(exception)],
    )
    with hooked(way, lock="cache"):
        key = lock_key(ticket)
        cache.set(key, "held")
        with pytest.raises(Boom) as raised:
            ticket.probe.work()

    assert cache.get(key) == "held"
    assert failures == [raised.value]
    assert ticket.state == stored(ticket) == "new"
    assert all_records() == 0


def test_a_failing_action_without_lock_does_not_overwrite_a_move(ticket: Ticket) -> None:
    """
    When the object moved while the action worked, failed_state is not written, and the copy learns the truth.
    """

    def be_overtaken(instance: Any, **kwargs: Any) -> None:
        assert Worker(lambda: fresh(ticket).probe.go()).result() is True
        raise Boom

    with hooked(
        Action("work", ["new"], side_effects=[be_overtaken], failed_state="failed", lock="none"),
        Transition("go", ["new"], "done"),
    ):
        with pytest.raises(Boom):
            ticket.probe.work()
        chain = moves(ticket)

    assert chain == [("new", "done")]
    assert ticket.state == stored(ticket) == "done"


def test_a_broken_transaction_does_not_replace_the_error_of_an_action(ticket: Ticket) -> None:
    """
    Inside a caller's transaction that a side effect broke, its error reaches the caller and failure callbacks run.
    """
    failures: list[Any] = []

    def break_it(instance: Any, **kwargs: Any) -> None:
        product = Product.objects.create(name="written")
        Product.objects.create(pk=product.pk)

    way = Action(
        "work",
        ["new"],
        side_effects=[break_it],
        failed_state="failed",
        lock="none",
        failure_callbacks=[lambda instance, exception, **kwargs: failures.append(exception)],
    )
    with hooked(way), pytest.raises(IntegrityError) as raised, transaction.atomic():
        ticket.probe.work()

    assert failures == [raised.value]
    assert stored(ticket) == "new"
    assert connection.in_atomic_block is False
