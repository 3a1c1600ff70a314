"""
Prove that PostgreSQL's own views tell who holds a row, and who keeps vacuum from its work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connection, transaction

from django_logic.background import claim
from django_logic.background.explain import Code, explain, rows_with, tally
from django_logic.background.explain.sessions import oldest_snapshot
from django_logic.background.models import TransitionMessage
from tests.background.flows import Flow, make_due, new_ticket, work
from tests.background.onlookers import TABLE, codes, enter_worker, lock, pid_of, session, told

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]


@pytest.fixture
def row(flow: Flow) -> TransitionMessage:
    """
    Give an open row that is due in a served queue.
    """
    flow(work(queue="q"))
    new_ticket().flow.go()
    enter_worker("q")
    return TransitionMessage.objects.get()


@pytest.fixture
def other() -> Iterator[Any]:
    """
    Give the cursor of a second session.
    """
    with session() as cursor:
        yield cursor


def lock_in_a_savepoint(cursor: Any, pk: int) -> None:
    """
    Lock a row below a savepoint, in a transaction of its own number.
    """
    cursor.execute("SAVEPOINT inner_one")
    lock(cursor, pk)


def change(cursor: Any, pk: int) -> None:
    """
    Change a row without ending the transaction.
    """
    cursor.execute(f"UPDATE {TABLE} SET priority = 9 WHERE id = %s", [pk])


HOLDS: dict[str, Callable[[Any, int], None]] = {
    "for update": lock,
    "for no key update": lambda cursor, pk: lock(cursor, pk, "NO KEY UPDATE"),
    "for key share": lambda cursor, pk: lock(cursor, pk, "KEY SHARE"),
    "in a savepoint": lock_in_a_savepoint,
    "by an update": change,
}


@pytest.mark.parametrize("how", HOLDS)
def test_row_that_another_session_holds_names_the_session(row: TransitionMessage, other: Any, how: str) -> None:
    """
    Whatever lock a foreign session has on a row, the session, its last statement and its end are told.
    """
    pid = pid_of(other)
    HOLDS[how](other, row.pk)

    found = told()

    assert found.code is Code.HELD_BY_SESSION
    assert found.detail.startswith(f"session {pid} (postgres, idle in transaction) holds its lock since ")
    assert TABLE in found.detail
    assert found.next_command == f"manage.py dbshell -- -c 'SELECT pg_terminate_backend({pid})'"
    assert [entry.code for entry in tally()] == [Code.HELD_BY_SESSION]
    assert [held.pk for held in rows_with(Code.HELD_BY_SESSION)] == [row.pk]


def test_row_that_several_sessions_share_names_one_of_them(row: TransitionMessage) -> None:
    """
    A shared lock is a group of transactions; one of those that stand in the way is named.
    """
    with ExitStack() as stack:
        sharing = [stack.enter_context(session()) for _ in range(3)]
        for cursor in sharing:
            lock(cursor, row.pk, "SHARE")
        pids = {pid_of(cursor) for cursor in sharing}

        found = told()

    assert found.code is Code.HELD_BY_SESSION
    assert int(found.detail.split()[1]) in pids


@pytest.mark.parametrize("end", ["ROLLBACK", "COMMIT"])
@pytest.mark.parametrize("how", HOLDS)
def test_row_that_was_held_is_free_once_the_transaction_is_over(
    row: TransitionMessage, other: Any, how: str, end: str
) -> None:
    """
    A row keeps the number of whoever locked it last; it counts no more when that transaction has ended.
    """
    HOLDS[how](other, row.pk)
    other.execute(end)

    assert codes() == [Code.CLAIMABLE_NOW]
    other.execute("BEGIN")


def test_savepoint_that_was_rolled_back_holds_nothing(row: TransitionMessage, other: Any) -> None:
    """
    A lock taken below a savepoint ends with it, though its transaction goes on.
    """
    change(other, 0)
    lock_in_a_savepoint(other, row.pk)
    other.execute("ROLLBACK TO SAVEPOINT inner_one")

    assert codes() == [Code.CLAIMABLE_NOW]


def test_session_that_claimed_a_row_and_holds_it_runs_it(row: TransitionMessage) -> None:
    """
    The lock of the session that made the claim is its attempt: worker, session and number of the attempt are told.
    """
    message = claim.take("default", row.pk, worker="left")
    assert message is not None
    make_due()
    with transaction.atomic():
        claim.hold(message, "default")
        with connection.cursor() as cursor:
            pid = pid_of(cursor)

        found = told()
        counts = [(entry.code, entry.count) for entry in tally()]
        listed = [running.pk for running in rows_with(Code.RUNNING)]

    assert found.code is Code.RUNNING
    assert found.detail.startswith(f"worker left in session {pid}, since ")
    assert found.detail.endswith(", attempt 1 of 5")
    assert found.next_command == f"manage.py dl_transitions --cancel {row.pk}"
    assert (counts, listed) == ([(Code.RUNNING, 1)], [row.pk])


def test_claimed_row_that_another_session_holds_is_not_called_running(row: TransitionMessage, other: Any) -> None:
    """
    A foreign session in the way of an attempt is told, though the row is claimed.
    """
    claim.take("default", row.pk)
    lock(other, row.pk)

    assert codes() == [Code.HELD_BY_SESSION]


def test_session_that_calls_itself_a_workers_runs_what_it_holds(row: TransitionMessage, other: Any) -> None:
    """
    Behind a pooler the claim and the attempt may be different sessions; an application name tells the worker's.
    """
    other.execute("SET LOCAL application_name = 'dl_worker left'")
    claim.take("default", row.pk)
    lock(other, row.pk)

    assert codes() == [Code.RUNNING]


def test_old_transaction_elsewhere_is_noted_once(
    row: TransitionMessage, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A session that keeps dead rows from vacuum stands beside the first row, with the command that shows it.
    """
    monkeypatch.setattr("django_logic.background.explain.sessions.SNAPSHOT_SECONDS", 0.0)
    new_ticket().flow.go()
    pid = pid_of(other)
    other.execute("SELECT pg_current_xact_id()")

    first, second = explain()

    assert first.note.startswith(f"held_snapshot: session {pid} (postgres, idle in transaction) has had a transaction")
    assert first.note.endswith(f"manage.py dbshell -- -c 'SELECT * FROM pg_stat_activity WHERE pid = {pid}'")
    assert second.note == ""
    assert first.as_data()["detail"] == f"{first.detail}; {first.note}"
    assert set(first.as_data()) == {
        *("id", "model", "instance_id", "process", "transition", "queue", "errors_count", "attempts_started"),
        *("age_seconds", "code", "detail", "next_command"),
    }


def test_snapshot_counts_only_when_it_is_old_and_nobodys_attempt(row: TransitionMessage, other: Any) -> None:
    """
    A young transaction, one that holds nothing, and one that holds rows of background work are no snapshot to note.
    """
    other.execute("SELECT 1")
    holds_nothing = oldest_snapshot("default", 0.0)
    other.execute("SELECT pg_current_xact_id()")
    is_young = oldest_snapshot("default", 60.0)
    found = oldest_snapshot("default", 0.0)
    lock(other, row.pk)
    holds_rows = oldest_snapshot("default", 0.0)

    assert (holds_nothing, is_young, holds_rows) == (None, None, None)
    assert found is not None
    assert (found[0].pid, found[1].total_seconds() < 30) == (pid_of(other), True)
