"""
Prove what lives and dies with whose transaction, and that callbacks belong to the outermost commit.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase

from django_logic import Transition
from tests.app.hooked import Boom, all_records, fail, hooked, moves, nothing, stored
from tests.app.models import Product, Ticket

pytestmark = pytest.mark.django_db(transaction=True)


def break_the_database(instance: Any, **kwargs: Any) -> None:
    """
    Run into a database error.
    """
    product = Product.objects.create(name="twice")
    Product.objects.create(pk=product.pk)


@pytest.fixture
def ticket() -> Ticket:
    """
    Give a saved object in its first state.
    """
    return Ticket.objects.create()


@pytest.mark.parametrize("effects", [[], [nothing]])
def test_callbacks_wait_for_the_outermost_commit(effects: list[Any], ticket: Ticket) -> None:
    """
    Inside nested transactions callbacks run once, after the outermost one has committed.
    """
    seen: list[tuple[bool, str]] = []

    def look(instance: Any, **kwargs: Any) -> None:
        seen.append((connection.in_atomic_block, stored(instance)))

    with hooked(Transition("go", ["new"], "done", side_effects=effects, callbacks=[look])), transaction.atomic():
        with transaction.atomic():
            ticket.probe.go()
        before_commit = list(seen)

    assert before_commit == []
    assert seen == [(False, "done")]


@pytest.mark.parametrize("effects", [[], [nothing]])
def test_callbacks_of_a_call_of_its_own_run_before_it_returns(effects: list[Any], ticket: Ticket) -> None:
    """
    Outside a transaction the commit is the call's own: callbacks have run as it returns, outside of it.
    """
    seen: list[tuple[bool, str]] = []

    def look(instance: Any, **kwargs: Any) -> None:
        seen.append((connection.in_atomic_block, stored(instance)))

    with hooked(Transition("go", ["new"], "done", side_effects=effects, callbacks=[look])):
        ticket.probe.go()

    assert seen == [(False, "done")]


@pytest.mark.django_db
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("effects", [[], [nothing]])
def test_a_rollback_takes_the_move_and_its_callbacks(effects: list[Any], inner: bool, ticket: Ticket) -> None:
    """
    A caller's rollback, of all or of a savepoint, leaves no state, no record, no callback, no next transition.
    """
    ran: list[str] = []
    way = Transition(
        "go",
        ["new"],
        "done",
        side_effects=effects,
        callbacks=[lambda instance, **kwargs: ran.append("callback")],
        next_transition="on",
    )
    with hooked(way, Transition("on", ["done"], "further")):
        with transaction.atomic():
            with transaction.atomic():
                moved = ticket.probe.go()
                transaction.set_rollback(inner)
            transaction.set_rollback(not inner)
        chain = moves(ticket)

    assert moved is True
    assert (stored(ticket), chain, ran) == ("new", [], [])
    ticket.refresh_from_db()
    assert ticket.state == "new"


def test_after_a_rollback_the_same_instance_moves_again(ticket: Ticket) -> None:
    """
    A rollback the caller did not repair harms nobody: the next call reads the row.
    """
    with transaction.atomic():
        ticket.process.publish()
        transaction.set_rollback(True)

    moved = ticket.process.publish()

    assert moved is True
    assert moves(ticket, "process") == [("new", "published")]


@pytest.mark.parametrize("failed_state", [None, "failed"])
def test_a_failure_inside_the_callers_transaction_costs_only_the_move(failed_state: Any, ticket: Ticket) -> None:
    """
    A caller who catches the failure keeps his own work; the failed move is undone, failed_state is part of his commit.
    """
    other = Ticket.objects.create()

    def write_and_fail(instance: Any, **kwargs: Any) -> None:
        Product.objects.create(name="written")
        raise Boom

    with hooked(Transition("go", ["new"], "done", side_effects=[write_and_fail], failed_state=failed_state)):
        with transaction.atomic():
            Ticket.objects.filter(pk=other.pk).update(note="mine")
            with pytest.raises(Boom):
                ticket.probe.go()
        chain = moves(ticket)

    assert stored(other, "note") == "mine"
    assert not Product.objects.exists()
    assert chain == ([("new", "failed")] if failed_state else [])
    assert ticket.state == stored(ticket) == (failed_state or "new")


def test_failed_state_dies_with_the_callers_transaction(ticket: Ticket) -> None:
    """
    A caller who lets the failure through rolls everything back, failed_state included.
    """
    with hooked(Transition("go", ["new"], "done", side_effects=[fail], failed_state="failed")):
        with pytest.raises(Boom), transaction.atomic():
            ticket.probe.go()
        chain = moves(ticket)

    assert (stored(ticket), chain) == ("new", [])
    ticket.refresh_from_db()
    assert ticket.state == "new"


@pytest.mark.parametrize("failed_state", [None, "failed"])
def test_a_swallowed_database_error_is_a_failure(failed_state: Any, ticket: Ticket) -> None:
    """
    A side effect that swallows a database error can't pass for done: the call fails, the work is undone.
    """

    def swallow(instance: Any, **kwargs: Any) -> None:
        with contextlib.suppress(IntegrityError):
            break_the_database(instance)

    with hooked(Transition("go", ["new"], "done", side_effects=[swallow], failed_state=failed_state)):
        with pytest.raises(DatabaseError):
            ticket.probe.go()
        chain = moves(ticket)

    assert not Product.objects.exists()
    assert chain == ([("new", "failed")] if failed_state else [])
    assert ticket.state == stored(ticket) == (failed_state or "new")


@pytest.mark.django_db
def test_a_database_error_with_a_savepoint_of_its_own_is_none(ticket: Ticket) -> None:
    """
    A side effect that guards its risky statement by its own atomic() succeeds.
    """

    def guard(instance: Any, **kwargs: Any) -> None:
        try:
            with transaction.atomic():
                break_the_database(instance)
        except IntegrityError:
            Product.objects.create(name="instead")

    with hooked(Transition("go", ["new"], "done", side_effects=[guard])):
        moved = ticket.probe.go()

    assert moved is True
    assert list(Product.objects.values_list("name", flat=True)) == ["instead"]


@pytest.mark.django_db
def test_a_side_effect_that_asks_for_a_rollback_gets_a_failure(ticket: Ticket) -> None:
    """
    set_rollback(True) in a side effect can't end as a move that never landed.
    """
    with (
        hooked(
            Transition("go", ["new"], "done", side_effects=[lambda instance, **kwargs: transaction.set_rollback(True)])
        ),
        pytest.raises(DatabaseError),
    ):
        ticket.probe.go()

    assert ticket.state == stored(ticket) == "new"
    assert all_records() == 0


class TestUnderATestCase(TestCase):
    """
    Prove callbacks where the tests' own transaction is open around them.
    """

    def test_a_callbacks_database_error_spoils_nothing(self) -> None:
        """
        Callback one breaks on the database, callback two runs, and a query afterwards works.
        """
        ticket = Ticket.objects.create()
        seen: list[str] = []

        def look(instance: Any, **kwargs: Any) -> None:
            seen.append(stored(instance))

        way = Transition("go", ["new"], "done", callbacks=[break_the_database, look], next_transition="on")
        on = Transition("on", ["done"], "further", side_effects=[break_the_database])
        with hooked(way, on), self.captureOnCommitCallbacks(execute=True) as callbacks:
            ticket.probe.go()

        assert len(callbacks) == 1
        assert seen == ["done"]
        assert stored(ticket) == "done"
        assert not Product.objects.exists()

    def test_failure_callbacks_database_error_spoils_nothing(self) -> None:
        """
        The same for failure callbacks, which run at once inside the caller's transaction.
        """
        ticket = Ticket.objects.create()
        seen: list[str] = []
        callbacks = [break_the_database, lambda instance, **kwargs: seen.append(stored(instance))]

        way = Transition("go", ["new"], "done", side_effects=[fail], failure_callbacks=callbacks)
        with hooked(way), pytest.raises(Boom):
            ticket.probe.go()

        assert seen == ["new"]
        assert not Product.objects.exists()


@pytest.mark.parametrize("effects", [[], [nothing]])
def test_manual_transactions_are_refused_before_anything_is_written(effects: list[Any], ticket: Ticket) -> None:
    """
    Without autocommit nobody tells us of the commit: a call that has something to do after it is refused at once.
    """
    ran: list[str] = []
    way = Transition(
        "go", ["new"], "done", side_effects=effects, callbacks=[lambda instance, **kwargs: ran.append("callback")]
    )
    transaction.set_autocommit(False)
    try:
        with hooked(way), pytest.raises(TransactionManagementError):
            ticket.probe.go()
        transaction.commit()
    finally:
        transaction.set_autocommit(True)

    assert ticket.state == stored(ticket) == "new"
    assert ran == []


@pytest.mark.parametrize("effects", [[], [nothing]])
def test_manual_transactions_carry_a_move_without_callbacks(effects: list[Any], ticket: Ticket) -> None:
    """
    A caller who commits by hand moves an object like everybody else; his rollback takes it back.
    """
    if connection.vendor == "sqlite":
        pytest.skip("on SQLite the end of Django's atomic() commits, in manual transactions too")
    transaction.set_autocommit(False)
    try:
        with hooked(Transition("go", ["new"], "done", side_effects=effects)):
            moved = ticket.probe.go()
            transaction.rollback()
            after_rollback = stored(ticket)
            again = ticket.probe.go()
        transaction.commit()
    finally:
        transaction.set_autocommit(True)

    assert (moved, after_rollback, again) == (True, "new", True)
    assert ticket.state == stored(ticket) == "done"
