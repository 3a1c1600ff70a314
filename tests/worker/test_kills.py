"""
Prove that nothing is lost and nothing is done twice, whichever process is killed at whichever moment.
"""

from __future__ import annotations

import pytest

from tests.worker.gates import Gate
from tests.worker.harness import open_rows, row, skip_pause, until, worker
from tests.worker.invariants import violations
from tests.worker_app.ledger import Ledger
from tests.worker_app.models import Job

#: The moments of an attempt, and how many errors an attempt that ends there leaves on its row.
WINDOWS = {"after_claim": 1, "after_stamp": 1, "before_commit": 1, "after_commit": 0}

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]


def all_done() -> bool:
    """
    Tell whether nothing is open any more, durable rows included.
    """
    return not open_rows()


@pytest.mark.parametrize(("window", "errors"), WINDOWS.items())
@pytest.mark.parametrize("deed", ["kill", "exit:0"])
def test_child_that_dies_in_a_window_costs_one_attempt(window: str, errors: int, deed: str, ledger: Ledger) -> None:
    """
    The worker outlives its child, counts the attempt that had not committed, and the work is done once.
    """
    job = Job.objects.create()
    job.process.quick()

    with worker(points={window: {"do": deed, "times": 1}}) as running:
        until(all_done)
        outlived = running.is_running()

    assert outlived
    assert violations([job], accepted=1) == []
    assert (row(job).outcome, row(job).errors_count) == ("succeeded", errors)
    assert row(job).last_error_message.startswith("[crashed]" if errors else "")
    assert ledger.count("told", "stop") == 1


@pytest.mark.parametrize(("window", "errors"), WINDOWS.items())
def test_whole_worker_that_dies_in_a_window_leaves_its_row_to_the_next(
    window: str, errors: int, ledger: Ledger
) -> None:
    """
    With parent and child killed at once the attempt is counted all the same, and the next worker does the work.
    """
    job = Job.objects.create()
    job.process.quick()
    with worker(points={window: "kill_group"}) as first:
        first.wait()
    skip_pause(job)

    with worker():
        until(all_done)

    assert violations([job], accepted=1) == []
    assert (row(job).outcome, row(job).errors_count) == ("succeeded", errors)
    assert row(job).last_error_message.startswith("[lost]" if errors else "")
    assert ledger.count("told", "stop") == 1


@pytest.mark.parametrize(("window", "errors"), WINDOWS.items())
def test_children_do_not_outlive_their_parent(window: str, errors: int, gate: Gate, ledger: Ledger) -> None:
    """
    With the parent killed alone its children end too, commit nothing more, and the next worker does the work.
    """
    job = Job.objects.create()
    job.process.quick()
    with worker(points={window: gate.deed}) as first:
        gate.arrival()
        first.kill9()
        until(lambda: not first.members())
    skip_pause(job)

    with worker():
        until(all_done)

    assert violations([job], accepted=1) == []
    assert (row(job).outcome, row(job).errors_count) == ("succeeded", errors)
    assert ledger.count("told", "stop") == 1


def test_row_that_kills_every_worker_ends_in_its_failed_state(ledger: Ledger) -> None:
    """
    Parent and child die each time; every attempt is counted when it starts, so the limit holds.
    """
    job = Job.objects.create()
    job.process.crash(how="kill_group", times=99)

    for _ in range(3):
        with worker() as doomed:
            doomed.wait()
        skip_pause(job)
    with worker():
        until(all_done)

    assert violations([job], accepted=1) == []
    assert (job.state, row(job).outcome, row(job).attempts_started) == ("failed", "failed", 3)
    assert ledger.count("warned", "stop") == 1
