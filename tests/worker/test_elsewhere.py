"""
Prove that a worker does its work on the other databases too, within what each of them can.
"""

from __future__ import annotations

import pytest
from django.db import connection

from tests.worker.harness import open_rows, row, until, worker
from tests.worker.invariants import violations
from tests.worker_app.ledger import Ledger
from tests.worker_app.models import Job

pytestmark = pytest.mark.django_db(transaction=True)


def test_worker_runs_rows_and_what_follows_them(ledger: Ledger) -> None:
    """
    Twenty rows are done once each, their callbacks after them, by as many children as the database takes.
    """
    jobs = [Job.objects.create() for _ in range(20)]
    for job in jobs:
        job.process.quick()

    with worker(
        concurrency=1 if connection.vendor == "sqlite" else 2, settings={"DEBUG": True}, args=["--poll", "0.2"]
    ):
        until(lambda: not open_rows())

    assert violations(jobs, accepted=20) == []
    assert ledger.count("told", "stop") == 20


def test_crash_is_counted_and_the_row_tried_again(ledger: Ledger) -> None:
    """
    A child that dies costs one attempt, on every database.
    """
    job = Job.objects.create()
    job.process.quick()

    with worker(
        points={"before_commit": {"do": "kill", "times": 1}}, settings={"DEBUG": True}, args=["--poll", "0.2"]
    ) as running:
        until(lambda: not open_rows())
        assert running.is_running()

    assert violations([job], accepted=1) == []
    assert (row(job).outcome, row(job).errors_count) == ("succeeded", 1)
