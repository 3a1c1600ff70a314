"""
Prove that what is told of rows is true of real workers.
"""

from __future__ import annotations

import pytest

from django_logic.background.cancel import cancel_message
from django_logic.background.explain import Code, Explanation, explain
from django_logic.background.models import Worker
from tests.worker.gates import Gate
from tests.worker.harness import row, sql, until, worker
from tests.worker_app.ledger import Ledger
from tests.worker_app.models import Job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]


def told(job: Job) -> Explanation:
    """
    Explain the row of a job.
    """
    (found,) = explain(pks=[row(job).pk])
    return found


def test_attempt_of_a_worker_is_running_until_it_dies(ledger: Ledger, gate: Gate) -> None:
    """
    A row is running with the worker's name and its session while the attempt runs; then it is not, whatever ended it.
    """
    first, second = Job.objects.create(), Job.objects.create()
    with worker(args=["--name", "left"]) as running:
        running.wait_ready()
        first.process.wait(gate=str(gate.path))
        gate.arrival()
        second.process.quick()
        until(lambda: Worker.objects.exists())

        found = told(first)
        behind = told(second)
        sessions = running.sessions()
        cancel_message(row(first).pk)
        asked = told(first)
        running.kill9_group()
        for pid in running.sessions():
            sql("SELECT pg_terminate_backend(%s)", pid)
        until(lambda: told(first).code is not Code.RUNNING)
        lost = told(first)

    assert found.code is Code.RUNNING
    assert found.detail.startswith("worker left in session ")
    assert int(found.detail.removeprefix("worker left in session ").partition(",")[0]) in sessions
    assert (behind.code, behind.detail.partition(", next")[0].endswith("worker left")) == (Code.CLAIMABLE_NOW, True)
    assert (asked.code, asked.detail.endswith("; asked to cancel")) == (Code.RUNNING, True)
    assert lost.code in (Code.LEASE_LIVE_UNTIL, Code.CLAIMABLE_NOW, Code.NO_WORKER_FOR_QUEUE)
