"""
Prove what a call costs in statements, on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_logic import Action, ProcessManager, Transition
from django_logic.exceptions import TransitionNotAllowed
from tests.app.hooked import fresh, hooked, nothing
from tests.app.models import Ticket

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]

FRAME = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK TO SAVEPOINT")


class Statements(list[str]):
    """
    Hold what was sent to the database, the frame of transactions apart.
    """

    frame: list[str]


@contextmanager
def counted() -> Iterator[Statements]:
    """
    Give the statements of the block, filled as it ends.
    """
    statements = Statements()
    with CaptureQueriesContext(connection) as captured:
        yield statements
    texts = [entry["sql"] for entry in captured.captured_queries]
    statements.frame = [text.split(" ")[0] for text in texts if text.startswith(FRAME)]
    statements += [text for text in texts if not text.startswith(FRAME)]


def test_the_fast_path_is_one_statement() -> None:
    """
    A move with nothing to do under the lock is one statement without a transaction around it.
    """
    ticket = Ticket.objects.create()

    with counted() as statements:
        moved = ticket.process.publish()

    assert moved is True
    assert len(statements) == 1
    assert statements.frame == []


def test_callbacks_and_a_user_keep_the_fast_path(django_user_model: Any) -> None:
    """
    Callbacks run after the commit and an actor is only recorded, so neither costs a statement.
    """
    ticket, user = Ticket.objects.create(), django_user_model.objects.create(username="kim")

    with hooked(Transition("go", ["new"], "done", callbacks=[nothing])), counted() as statements:
        ticket.probe.go(user=user, reason="because")

    assert len(statements) == 1


def test_one_side_effect_costs_three_statements_at_most() -> None:
    """
    Lock and read, write: three statements at most, beside BEGIN, COMMIT and one savepoint.
    """
    ticket = Ticket.objects.create()

    with hooked(Transition("go", ["new"], "done", side_effects=[nothing])), counted() as statements:
        ticket.probe.go()

    assert len(statements) <= 3
    assert statements.frame[0] == "BEGIN"
    assert statements.frame[-1] == "COMMIT"
    assert set(statements.frame[1:-1]) <= {"SAVEPOINT", "RELEASE"}
    assert statements.frame.count("SAVEPOINT") <= 1


def test_failed_state_costs_one_savepoint_more() -> None:
    """
    A declaration with failed_state stays within the same budget when it succeeds.
    """
    ticket = Ticket.objects.create()
    way = Transition("go", ["new"], "done", side_effects=[nothing], failed_state="failed")

    with hooked(way), counted() as statements:
        ticket.probe.go()

    assert len(statements) <= 3
    assert statements.frame.count("SAVEPOINT") <= 1


def test_inside_the_callers_transaction_a_call_stays_in_budget() -> None:
    """
    A caller's transaction adds a savepoint, no statement.
    """
    ticket = Ticket.objects.create()

    with hooked(Transition("go", ["new"], "done", side_effects=[nothing])), transaction.atomic(), counted() as sent:
        ticket.probe.go()

    assert len(sent) <= 3
    assert sent.frame.count("SAVEPOINT") <= 2


def test_a_duplicate_and_a_refusal_write_nothing() -> None:
    """
    A call that does not move reads, and sends no statement that writes.
    """
    ticket = Ticket.objects.create()
    stale, staler = fresh(ticket), fresh(ticket)
    ticket.process.publish()

    with counted() as statements:
        duplicate = stale.process.publish()
        with pytest.raises(TransitionNotAllowed):
            staler.process.touch()

    assert duplicate is False
    assert all(" FOR NO KEY UPDATE" in text or text.startswith("\nWITH") for text in statements)
    assert len(statements) <= 4


def test_an_action_costs_one_read() -> None:
    """
    An action locks and reads its row; it writes nothing of ours.
    """
    ticket = Ticket.objects.create()

    with hooked(Action("work", ["new"], side_effects=[nothing])), counted() as statements:
        ticket.probe.work()

    assert len(statements) == 1


def test_listing_the_actions_of_a_page_is_constant() -> None:
    """
    What 100 objects may do costs as many statements as what one may do.
    """
    tickets = Ticket.objects.bulk_create(Ticket(state="new" if n % 2 else "published") for n in range(100))

    with counted() as for_one:
        ProcessManager.available_actions(Ticket.objects.filter(pk=tickets[0].pk))
    with counted() as for_all:
        listed = ProcessManager.available_actions(Ticket.objects.all())

    assert len(for_all) == len(for_one) == 1
    assert listed == {
        ticket.pk: ["publish", "touch"] if ticket.state == "new" else ["archive", "reopen"] for ticket in tickets
    }


def test_asking_costs_nothing() -> None:
    """
    Listing and explaining judge the state in memory.
    """
    ticket = Ticket.objects.create()

    with counted() as statements:
        ticket.process.get_available_actions()
        ticket.process.why_not("archive")
        ticket.process.why_not(target="archived")

    assert statements == []
