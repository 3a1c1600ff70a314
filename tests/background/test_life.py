"""
Prove the life of one background call from end to end, inline.
"""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_logic.background import run_available, sync_execution
from django_logic.background.models import TransitionMessage
from django_logic.exceptions import AlreadyInProgress
from django_logic.models import StatusChange
from tests.worker_app.models import Effect, Job

pytestmark = pytest.mark.django_db(transaction=True)


def test_call_saves_a_row_and_the_busy_state_and_a_run_ends_both() -> None:
    """
    A call returns with one open row and the busy state; running what is due writes target, history and the row's end.
    """
    job = Job.objects.create()
    user = User.objects.create(username="ada")

    assert job.process.quick(user=user, reason="because", note={"a": (1, 2)}) is True

    row = TransitionMessage.objects.get()
    assert (row.is_completed, row.attempts_started, job.state) == (False, 0, "working")
    assert run_available() == 2
    job.refresh_from_db()
    ended = TransitionMessage.objects.get(pk=row.pk)
    assert (job.state, ended.outcome, ended.attempts_started, ended.errors_count) == ("done", "succeeded", 1, 0)
    moves = list(job.process.history.values_list("from_state", "to_state", "actor_label", "reason", "transition_id"))
    assert moves == [
        ("new", "working", "ada", "because", row.transition_id),
        ("working", "done", "ada", "because", row.transition_id),
    ]
    assert Effect.objects.count() == 1


def test_failing_attempts_end_in_failed_state() -> None:
    """
    Attempts that fail leave no writes; the last one writes failed_state and the failure callback's row.
    """
    job = Job.objects.create()
    job.process.fail(times=3)

    ran = [run_available() for _ in range(4)]

    job.refresh_from_db()
    row = TransitionMessage.objects.get(kind="transition")
    assert (job.state, row.outcome, row.attempts_started, row.errors_count) == ("failed", "failed", 3, 3)
    assert Effect.objects.count() == 0
    assert ran == [1, 1, 2, 0]


def test_sync_mode_runs_the_attempt_in_the_call() -> None:
    """
    In sync mode the call returns with the work done.
    """
    job = Job.objects.create()

    with sync_execution():
        job.process.quick()

    assert job.state == "done"
    assert not TransitionMessage.objects.open().exists()


@pytest.mark.usefixtures("only_postgres")
def test_call_without_guards_is_one_statement_and_a_word() -> None:
    """
    On PostgreSQL a call whose declaration has no guards saves row, busy state and history in one statement, and then
    notifies; while a row is open the same statement fails and the caller is told which row that is.
    """
    job = Job.objects.create()

    with CaptureQueriesContext(connection) as captured:
        job.process.quick()

    assert [query["sql"].split()[0] for query in captured] == ["WITH", "SELECT"]
    Job.objects.update(state="new")
    row = TransitionMessage.objects.get()
    with pytest.raises(AlreadyInProgress, match=f"row {row.pk}"):
        Job.objects.get(pk=job.pk).process.quick()
    assert StatusChange.objects.count() == 1
