"""
Prove that nothing is lost and nothing is done twice, whichever process is killed at whichever moment.

Leases of the dead are made to pass at once; one test waits for the lease that production has.
"""

from __future__ import annotations

import signal
from datetime import timedelta

import pytest

from django_logic.background import claim
from tests.worker import processes
from tests.worker.asking import ask, is_all_done
from tests.worker.deaths import Victim, outlive
from tests.worker.gates import Gate
from tests.worker.harness import row, skip_pause, until, worker
from tests.worker.invariants import violations
from tests.worker_app.ledger import Ledger

#: The moments of an attempt, and how many errors an attempt that ends there leaves on its row.
WINDOWS = {"after_claim": 1, "after_stamp": 1, "before_commit": 1, "after_commit": 0}

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]


@pytest.mark.parametrize(("window", "errors"), WINDOWS.items())
@pytest.mark.parametrize("victim", Victim)
def test_attempt_whose_process_dies_in_a_window_costs_one_error_and_is_made_again(
    victim: Victim, window: str, errors: int, gate: Gate, ledger: Ledger
) -> None:
    """
    What had not committed is undone and counted, what had is kept; callbacks follow once.
    """
    job = ask("quick")

    outlive(victim, victim.dies_once(window, gate), gate, [job])

    assert violations([job], accepted=1, ledger=ledger) == []
    assert (row(job).outcome, row(job).errors_count) == ("succeeded", errors)
    assert row(job).last_error_message.startswith(victim.mark if errors else "")
    assert ledger.count("told", "stop") == 1


@pytest.mark.parametrize(("window", "errors"), WINDOWS.items())
def test_child_that_leaves_with_status_0_in_a_window_has_crashed(window: str, errors: int, ledger: Ledger) -> None:
    """
    A good exit status in the middle of an attempt is as bad as any.
    """
    job = ask("quick")

    with worker(points={window: {"do": "exit:0", "times": 1}}):
        until(is_all_done)

    assert violations([job], accepted=1, ledger=ledger) == []
    assert (row(job).outcome, row(job).errors_count) == ("succeeded", errors)
    assert row(job).last_error_message.startswith("[crashed]" if errors else "")


@pytest.mark.parametrize("victim", Victim)
class TestBeforeAccounting:
    """
    An attempt that failed and dies before it can say so is counted all the same.
    """

    def test_failed_attempt_that_is_not_recorded_costs_one_error(
        self, victim: Victim, gate: Gate, ledger: Ledger
    ) -> None:
        """
        The words of the failure are lost, its count is not.
        """
        job = ask("fail")

        outlive(victim, victim.dies_once("before_accounting", gate), gate, [job])

        assert violations([job], accepted=1, ledger=ledger) == []
        assert (row(job).outcome, row(job).attempts_started, row(job).errors_count) == ("succeeded", 2, 1)
        assert row(job).last_error_message.startswith(victim.mark)

    def test_last_attempt_that_is_not_recorded_ends_in_the_failed_state(
        self, victim: Victim, gate: Gate, ledger: Ledger
    ) -> None:
        """
        Nobody tries once more: the state, the end of the row and one failure callback follow.
        """
        job = ask("fail", times=99)

        outlive(victim, victim.dies_once("before_accounting", gate, skip=2), gate, [job])

        assert violations([job], accepted=1, ledger=ledger) == []
        assert (job.state, row(job).outcome, row(job).attempts_started) == ("failed", "failed", 3)
        assert ledger.count("failing") == 3
        assert ledger.count("warned", "stop") == 1


def test_failure_for_good_that_is_not_recorded_is_found_again(gate: Gate, ledger: Ledger) -> None:
    """
    A permanent failure whose process dies with it fails for good in the next attempt.
    """
    job = ask("refuse")

    outlive(Victim.CHILD, Victim.CHILD.dies_once("before_accounting", gate), gate, [job])

    assert violations([job], accepted=1, ledger=ledger) == []
    assert (job.state, row(job).outcome, row(job).attempts_started) == ("failed", "failed", 2)
    assert row(job).last_error_message == "PermanentFailure: the customs refused it"


def test_snooze_that_is_not_recorded_counts_as_an_error(gate: Gate, ledger: Ledger) -> None:
    """
    An attempt that asked for a later one and died costs what any crash costs: nobody knows what it wanted.
    """
    job = ask("snooze")

    outlive(Victim.CHILD, Victim.CHILD.dies_once("before_accounting", gate), gate, [job])

    assert violations([job], accepted=1, ledger=ledger) == []
    assert (row(job).outcome, row(job).attempts_started, row(job).errors_count) == ("succeeded", 2, 1)


def test_account_of_a_dead_child_outlives_the_clerk(gate: Gate, ledger: Ledger) -> None:
    """
    The process that would write the error dies together with the child; its successor writes it, once.
    """
    job = ask("quick")

    with worker(points={"before_commit": {"do": gate.deed, "times": 1}}) as running:
        child = gate.arrival().pid
        clerk = running.children()[0]
        for pid in (clerk, child):
            processes.send(pid, signal.SIGKILL)
        until(is_all_done)
        log = running.log

    assert "The clerk ended" in log
    assert violations([job], accepted=1, ledger=ledger) == []
    assert (row(job).outcome, row(job).attempts_started, row(job).errors_count) == ("succeeded", 2, 1)
    assert row(job).last_error_message.startswith("[crashed]")


def test_row_that_kills_every_worker_ends_in_its_failed_state(ledger: Ledger) -> None:
    """
    B14: parent and child die each time; every attempt is counted when it starts, so the limit holds.
    """
    job = ask("crash", how="kill_group", times=99)

    for _ in range(3):
        with worker() as doomed:
            doomed.wait()
        skip_pause(job)
    with worker():
        until(is_all_done)

    assert violations([job], accepted=1, ledger=ledger) == []
    assert (job.state, row(job).outcome, row(job).attempts_started) == ("failed", "failed", 3)
    assert ledger.count("warned", "stop") == 1


def test_row_of_a_dead_worker_is_due_again_when_its_lease_is_over(ledger: Ledger) -> None:
    """
    With the lease that production has: ten seconds after the claim the next worker takes the row, and no earlier.
    """
    job = ask("quick")
    with worker(points={"after_claim": "kill_group"}) as first:
        first.wait()
    lost = row(job)

    with worker():
        until(is_all_done)

    assert lost.started_at is not None
    assert lost.run_at - lost.started_at == timedelta(seconds=claim.LEASE) == timedelta(seconds=10)
    taken = row(job).started_at
    assert taken is not None
    assert timedelta() <= taken - lost.run_at < timedelta(seconds=5)
    assert violations([job], accepted=1, ledger=ledger) == []
