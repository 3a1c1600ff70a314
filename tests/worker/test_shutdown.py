"""
Prove how a worker stops: told once, told twice, drained, or with work that does not end.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from django_logic.background.models import Worker
from tests.worker import processes
from tests.worker.altered import LEASE, altered
from tests.worker.asking import ask, is_all_done
from tests.worker.gates import Gate
from tests.worker.harness import open_rows, row, sql, until, worker
from tests.worker.invariants import violations
from tests.worker.obstacles import KEY, closed_lock
from tests.worker_app.models import Job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres", "ledger")]

#: A lease no test waits for: what runs sooner was put back.
LONG_LEASE = {LEASE: 600.0}


def counts(job: Job) -> tuple[int, int]:
    """
    Return how many attempts of a row were counted, and how many errors.
    """
    return row(job).attempts_started, row(job).errors_count


class TestToldOnce:
    """
    The first signal lets running attempts finish and begins no others.
    """

    def test_idle_worker_leaves_with_status_0(self) -> None:
        """
        D50: it leaves at once, also after attempts that failed, and is not counted among the workers any more.
        """
        ask("refuse")

        with worker(concurrency=2) as running:
            until(is_all_done)
            running.wait_ready()
            began = time.monotonic()
            running.term()
            status = running.wait()
            took = time.monotonic() - began
            left = running.members()
            log = running.log

        assert (status, left) == (0, [])
        assert not Worker.objects.exists()
        assert took < 5
        assert "Traceback" not in log.partition("PermanentFailure: the customs refused it")[2]

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_running_attempt_finishes_and_nothing_else_begins(self, number: signal.Signals, gate: Gate) -> None:
        """
        Even when the signal goes to every process of the group, as from a terminal or a service manager. The health
        file, which names the worker, is gone meanwhile: it takes no more.
        """
        job = ask("wait", gate=str(gate.path))
        with worker() as running:
            gate.arrival()
            running.wait_ready()
            named = int(running.health_file.read_text())
            later = ask("quick")
            os.killpg(running.pid, number)
            until(lambda: not running.health_file.exists())
            gate.let_go()
            status = running.wait()

        assert (status, named) == (0, running.pid)
        assert (row(job).outcome, counts(job)) == ("succeeded", (1, 0))
        assert counts(later) == (0, 0)

    def test_signal_between_claim_and_start_loses_nothing(self, gate: Gate) -> None:
        """
        B16: the claimed row is run within the grace time, or is there for the next worker at once.
        """
        job = ask("quick")
        with worker(points={"after_claim": gate.deed}, settings=altered(LONG_LEASE)) as running:
            gate.arrival()
            running.wait_ready().term()
            until(lambda: not running.health_file.exists())
            gate.let_go()
            status = running.wait()

        with worker(args=["--drain"]) as second:
            second.wait()

        assert status == 0
        assert violations([job], accepted=1) == []
        assert counts(job) == (1, 0)

    def test_signal_that_meets_a_child_as_it_is_forked_is_not_lost(self, gate: Gate) -> None:
        """
        A child that has no handler of its own yet leaves all the same, instead of noting the end as its parent would.
        """
        settings = altered(at_boot=["hold_the_first_child"], WORKER_GATE=str(gate.path))
        with worker(settings=settings) as running:
            child = gate.arrival().pid
            processes.send(child, signal.SIGTERM)
            gate.let_go()
            until(lambda: child not in running.children())

    def test_attempt_that_does_not_finish_in_time_is_put_back_without_counting(self, gate: Gate) -> None:
        """
        After the grace time it is ended, status 0; it costs no attempt, and the next worker need not wait for it.
        """
        running_job, claimed = ask("wait", gate=str(gate.path)), ask("wait", gate=str(gate.path))
        with worker(concurrency=2, args=["--grace", "0.3"], settings=altered(LONG_LEASE)) as running:
            gate.arrival()
            gate.arrival()
            running.term()
            status = running.wait()
            left = running.members()
        after = [counts(job) for job in (running_job, claimed)]
        gate.let_go(2)

        with worker(args=["--drain"]) as second:
            second.wait()

        assert (status, left) == (0, [])
        assert after == [(0, 0), (0, 0)]
        assert violations([running_job, claimed], accepted=2) == []
        assert [counts(job) for job in (running_job, claimed)] == [(1, 0), (1, 0)]


class TestToldTwice:
    """
    The second signal ends it at once.
    """

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_second_signal_ends_attempts_and_tells_so_by_the_status(self, number: signal.Signals, gate: Gate) -> None:
        """
        The status is 128 and the signal's number; the attempt is put back without counting all the same.
        """
        job = ask("wait", gate=str(gate.path))
        with worker(args=["--grace", "600"], settings=altered(LONG_LEASE)) as running:
            gate.arrival()
            running.wait_ready().term()
            until(lambda: not running.health_file.exists())
            began = time.monotonic()
            running.signal(number)
            status = running.wait()
            took = time.monotonic() - began
            left = running.members()

        assert (status, left) == (128 + number, [])
        assert took < 5
        assert counts(job) == (0, 0)
        assert row(job).claim_token is None

    def test_second_signal_waits_for_no_lock_that_the_server_still_holds(self) -> None:
        """
        The attempt was ended after its grace time, and the server goes on with its statement, so nothing can be written
        on the row yet; told again, the worker leaves without.
        """
        with closed_lock():
            ask("wait_in_database", key=KEY)
            with worker(args=["--grace", "0.2"]) as running:
                until(lambda: sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
                running.term()
                until(lambda: len(running.children()) < 2)
                began = time.monotonic()
                running.term()
                status = running.wait()
                took = time.monotonic() - began

        assert status == 128 + signal.SIGTERM
        assert took < 5


class TestDraining:
    """
    With --drain a worker runs what is due, all of it, and leaves.
    """

    def test_drained_worker_has_run_everything_that_is_due(self) -> None:
        """
        Callbacks and next transitions are due too; other queues and later rows are not.
        """
        jobs = [ask("quick"), ask("follow"), ask("fail", times=2), ask("fail_after")]
        elsewhere, later = ask("aside"), ask("quick", delay=600)

        with worker(concurrency=2, args=["--drain"]) as running:
            status = running.wait()

        jobs[1].refresh_from_db()
        assert status == 0
        assert violations(jobs) == []
        assert {message.pk for message in open_rows()} == {row(elsewhere).pk, row(later).pk}
        assert [counts(job) for job in (elsewhere, later)] == [(0, 0), (0, 0)]

    def test_nothing_to_drain_ends_at_once(self) -> None:
        """
        An empty queue is drained.
        """
        with worker(args=["--drain"]) as running:
            assert running.wait(10) == 0

    @pytest.mark.parametrize("args", [["--max-attempts-per-child", "2"], []], ids=["worn out", "crashed"])
    def test_child_that_is_lost_on_the_way_does_not_end_the_drain(self, args: list[str]) -> None:
        """
        A child that is worn out or that crashes is replaced as long as rows are due.
        """
        jobs = [*([] if args else [ask("crash")]), *(ask("quick") for _ in range(5))]

        with worker(args=["--drain", *args]) as running:
            status = running.wait()

        assert status == 0
        assert violations(jobs) == []

    def test_row_that_is_put_back_late_is_drained_too(self, gate: Gate) -> None:
        """
        Nothing is due any more when the last child looks, but the account of a dead one has not landed: once it has,
        its row is run.
        """
        job = ask("quick")

        with worker(args=["--drain"], points={"after_claim": gate.deed}, settings=altered(LONG_LEASE)) as running:
            victim = gate.arrival().pid
            clerk = running.children()[0]
            processes.send(clerk, signal.SIGSTOP)
            processes.send(victim, signal.SIGKILL)
            until(lambda: running.children() == [clerk])
            processes.send(clerk, signal.SIGCONT)
            gate.let_go(10)
            status = running.wait()

        assert status == 0
        assert violations([job], accepted=1) == []
        assert counts(job) == (2, 1)
