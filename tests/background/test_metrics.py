"""
Prove that one look at background work tells what an operator watches.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_logic.background import PermanentFailure, run_available
from django_logic.background.cancel import cancel_message
from django_logic.background.explain import Code
from django_logic.background.metrics import Snapshot, count_ended, snapshot
from django_logic.background.models import State, TransitionMessage
from tests.app.models import Ticket
from tests.background.flows import Flow, age, message, new_ticket, work
from tests.background.onlookers import enter_worker, session

pytestmark = pytest.mark.django_db(transaction=True)


def giving_up(instance: Any, **keywords: Any) -> None:
    """
    Fail for good.
    """
    raise PermanentFailure("never")


def calls(flow: Flow, *actions: str) -> list[Ticket]:
    """
    Declare work in two queues, and make these calls, each for a new object.
    """
    flow(work(queue="a"), work(action="other", queue="b"), work(giving_up, action="fail", queue="a"))
    tickets = [new_ticket() for _ in actions]
    for ticket, action in zip(tickets, actions, strict=True):
        getattr(ticket.flow, action)()
    return tickets


def test_open_rows_are_counted_by_queue_and_reason_with_the_oldest(flow: Flow) -> None:
    """
    Each queue and reason has its count, each queue the age of its oldest row.
    """
    old, *_rest = calls(flow, "go", "go", "other")
    age(message(old), timedelta(hours=1), "created")
    enter_worker("b")

    figures = snapshot()

    assert dict(figures.open_rows) == {("a", Code.NO_WORKER_FOR_QUEUE): 2, ("b", Code.CLAIMABLE_NOW): 1}
    assert 3600 <= figures.oldest_seconds["a"] < 3660
    assert 0 <= figures.oldest_seconds["b"] < 60


def test_queue_in_use_without_rows_is_shown_as_empty(flow: Flow) -> None:
    """
    An alarm on the oldest row sees 0 for an empty queue, not nothing.
    """
    calls(flow)

    figures = snapshot()

    assert (figures.oldest_seconds["a"], figures.oldest_seconds["b"], dict(figures.open_rows)) == (0.0, 0.0, {})


def test_ended_rows_are_counted_by_outcome_while_they_are_kept(flow: Flow, settings: Any) -> None:
    """
    Every outcome has a count; what ended before the days that are kept is left out.
    """
    settings.DJANGO_LOGIC = {"TRANSITION_MESSAGE_CLEANUP_DAYS": 7}
    first, *_rest, last = calls(flow, "go", "go", "go", "fail", "other")
    cancel_message(message(last).pk)
    run_available()
    age(message(first), timedelta(days=8), "completed_at")

    assert snapshot().ended == {
        State.SUCCEEDED: 2,
        State.FAILED: 1,
        State.SUPERSEDED: 0,
        State.UNRESTORABLE: 0,
        State.CANCELLED: 1,
    }


def test_count_of_ended_rows_can_be_left_out(flow: Flow) -> None:
    """
    Who looks often need not read every row that is kept each time.
    """
    calls(flow, "go")
    run_available()

    assert (snapshot(with_ended=False).ended, count_ended()[State.SUCCEEDED]) == ({}, 1)


def test_workers_tell_how_they_fare() -> None:
    """
    Each worker's queues, its listening, its last claim and when it was seen are told, the dead's as well.
    """
    enter_worker("a", "b", name="left", is_listening=True, claim_ms=1.5, concurrency=2)
    enter_worker("a", name="right", seen=40, is_listening=None)

    left, right = snapshot().workers

    assert (left.name, left.host, left.queues, left.concurrency) == ("left", "h1", ("a", "b"), 2)
    assert (left.is_alive, left.is_listening, left.claim_seconds) == (True, True, 0.0015)
    assert (right.is_alive, right.is_listening, right.claim_seconds) == (False, None, None)
    assert left.seen_seconds < 30 < 40 <= right.seen_seconds


def test_session_that_keeps_dead_rows_is_measured(only_postgres: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    How long a transaction elsewhere has kept vacuum from its work is a figure, 0 without one.
    """
    monkeypatch.setattr("django_logic.background.explain.sessions.SNAPSHOT_SECONDS", 0.0)
    without = snapshot().held_snapshot_seconds
    with session() as other:
        other.execute("SELECT pg_current_xact_id()")

        held = snapshot().held_snapshot_seconds

    assert without == 0.0 < held < 60


def test_number_of_queries_does_not_grow(flow: Flow) -> None:
    """
    A look costs the same number of queries, however many rows, queues and workers there are.
    """
    flow(work(queue="a"), work(action="other", queue="b"))
    costs = []
    for number in range(3):
        for action in ("go", "other"):
            getattr(new_ticket().flow, action)()
        enter_worker("a", name=f"w{number}")
        with CaptureQueriesContext(connection) as queries:
            snapshot()
        costs.append(len(queries))

    assert len(set(costs)) == 1
    assert costs[0] <= 8


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
def test_each_database_has_its_own_figures(flow: Flow) -> None:
    """
    A look sees the rows of the database it is asked about.
    """
    flow(work(queue="a"))
    Ticket.objects.using("other").create().flow.go()

    assert (dict(snapshot().open_rows), sum(snapshot("other").open_rows.values())) == ({}, 1)


def test_figures_need_no_more_than_what_is_open() -> None:
    """
    Figures can be made without a database, for a page or a test of one.
    """
    figures = Snapshot(open_rows={}, oldest_seconds={})

    assert (dict(figures.ended), figures.workers, figures.held_snapshot_seconds) == ({}, (), 0.0)
    assert TransitionMessage.objects.count() == 0
