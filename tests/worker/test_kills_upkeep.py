"""
Prove that the safety nets do their work though their process, or all of the worker, is killed at it.

The interval of upkeep is short here, and so is the lease where a test waits for nothing else.
"""

from __future__ import annotations

import pytest

from django_logic.background.models import TransitionMessage
from tests.worker.altered import SHORT_LEASE, UPKEEP_EVERY, altered
from tests.worker.asking import ask
from tests.worker.gates import Gate
from tests.worker.harness import open_rows, row, until, worker
from tests.worker.invariants import violations
from tests.worker_app.ledger import Ledger
from tests.worker_app.models import Job
from tests.worker_app.process import SIDE_QUEUE

#: Upkeep every moment, with a lease that passes within the test.
OFTEN = altered({UPKEEP_EVERY: 0.3, **SHORT_LEASE})

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]


@pytest.fixture
def spent(ledger: Ledger) -> Job:
    """
    Give a job whose last attempt was lost, on a queue that the tests' workers do not serve.
    """
    job = ask("aside")
    TransitionMessage.objects.filter(pk=row(job).pk).update(attempts_started=3, errors_count=2)
    return job


def is_finished(job: Job) -> bool:
    """
    Tell whether upkeep has ended the row of a job.
    """
    return row(job).is_completed


def finish(job: Job, ledger: Ledger) -> None:
    """
    Have the failure callback delivered, which no upkeep does, and judge.
    """
    with worker(SIDE_QUEUE):
        until(lambda: not open_rows())
    assert violations([job], accepted=1, ledger=ledger) == []
    assert (job.state, row(job).outcome, ledger.count("warned", "stop")) == ("failed", "failed", 1)


@pytest.mark.parametrize("point", ["in_upkeep", "after_claim"])
def test_upkeep_that_is_killed_is_done_by_the_next_one(point: str, spent: Job, ledger: Ledger) -> None:
    """
    At its beginning or while it finishes a row: the worker goes on and spreads the nets again.
    """
    with worker(settings=OFTEN, points={point: {"do": "kill", "times": 1}}) as running:
        until(lambda: is_finished(spent))
        is_running = running.is_running()

    assert is_running
    finish(spent, ledger)


@pytest.mark.parametrize("point", ["in_upkeep", "after_claim"])
def test_upkeep_dies_with_its_parent_and_is_done_by_the_next_worker(
    point: str, spent: Job, gate: Gate, ledger: Ledger
) -> None:
    """
    With the parent killed alone its upkeep ends too, and another worker's does the work.
    """
    with worker(settings=OFTEN, points={point: {"do": gate.deed, "times": 1}}) as first:
        gate.arrival()
        first.kill9()
        until(lambda: not first.members())
    before = is_finished(spent)

    with worker(settings=OFTEN):
        until(lambda: is_finished(spent))

    assert not before
    finish(spent, ledger)


@pytest.mark.parametrize("point", ["in_upkeep", "after_claim"])
def test_worker_that_dies_in_its_upkeep_leaves_it_to_the_next(point: str, spent: Job, ledger: Ledger) -> None:
    """
    With everything killed at once another worker's upkeep does the work.
    """
    with worker(settings=OFTEN, points={point: {"do": "kill_group", "times": 1}}) as first:
        first.wait()
    before = is_finished(spent)

    with worker(settings=OFTEN):
        until(lambda: is_finished(spent))

    assert not before
    finish(spent, ledger)


def test_attempts_go_on_though_every_upkeep_is_killed(ledger: Ledger) -> None:
    """
    What ends the safety nets each time keeps nobody from working.
    """
    with worker(settings=OFTEN, points={"in_upkeep": "kill"}) as running:
        jobs = [ask("quick") for _ in range(5)]
        until(lambda: not open_rows())
        is_running = running.is_running()

    assert is_running
    assert violations(jobs, accepted=5, ledger=ledger) == []
