"""
Prove that work goes on in another process when the one that had it is lost, frozen, cut off, or can't do it.

Where a test would wait for nothing but the claim's lease, the lease is short (`SHORT_LEASE`).
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from django_logic.background.models import TransitionMessage, Worker
from django_logic.clock import FromNow
from tests.worker import gates, processes
from tests.worker.altered import BOOT_LIMIT, LEASE, SHORT_LEASE, altered
from tests.worker.asking import ask, is_all_done
from tests.worker.fault_process import FaultProcess, jobs_have
from tests.worker.gates import Gate
from tests.worker.harness import is_held, open_rows, row, sql, until, worker
from tests.worker.invariants import violations
from tests.worker_app.ledger import Ledger
from tests.worker_app.models import Job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres", "ledger")]

ROWS, WORKERS = TransitionMessage._meta.db_table, Worker._meta.db_table


def facts(job: Job) -> tuple[str, int, int]:
    """
    Return outcome, attempts and errors of a job's row.
    """
    message = row(job)
    return message.outcome, message.attempts_started, message.errors_count


def ahead(column: str, table: str = ROWS) -> float:
    """
    Return by how many seconds the latest time in a column is ahead of the database's clock.
    """
    ((seconds,),) = sql(f"SELECT EXTRACT(EPOCH FROM MAX({column}) - STATEMENT_TIMESTAMP()) FROM {table}")
    return float(seconds)


class TestLostOwner:
    """
    Whoever owned a row, and whatever its name, another one takes it over.
    """

    def test_worker_that_comes_back_under_its_name_finishes_what_it_had_begun(self, gate: Gate) -> None:
        """
        B01: nothing hangs on the name of the dead worker or on its entry among the workers.
        """
        job = ask("wait", gate=str(gate.path))
        with worker(args=["--name", "pod-0"], settings=altered(SHORT_LEASE)) as first:
            gate.arrival()
            first.kill9_group()
        sql(f"DELETE FROM {WORKERS}")
        gate.let_go()

        with worker(args=["--name", "pod-0"], settings=altered(SHORT_LEASE)):
            until(is_all_done)

        assert violations([job], accepted=1) == []
        assert facts(job) == ("succeeded", 2, 1)

    def test_killed_child_costs_its_own_attempt_alone(self, gate: Gate, ledger: Ledger) -> None:
        """
        B13: the other attempt goes on undisturbed, and so does the worker.
        """
        jobs = {job.pk: job for job in [ask("wait", gate=str(gate.path)) for _ in range(2)]}

        with worker(concurrency=2) as running:
            victim = gate.arrival().pid
            gate.arrival()
            (killed,) = [jobs[entry.job] for entry in ledger.entries("waiting", "start") if entry.pid == victim]
            processes.send(victim, signal.SIGKILL)
            gate.arrival()
            gate.let_go(2)
            until(is_all_done)
            is_running = running.is_running()

        assert is_running
        assert violations(jobs.values(), accepted=2) == []
        assert sorted(facts(job) for job in jobs.values()) == [("succeeded", 1, 0), ("succeeded", 2, 1)]
        assert row(killed).last_error_message == "[crashed] its process was ended by SIGKILL"

    def test_row_that_is_prepared_is_kept_and_taken_up_at_once_when_its_child_dies(self, gate: Gate) -> None:
        """
        While ``prepare`` hooks run there is no lock, but a lease far longer than that of the claim; the death of their
        process ends it all the same.
        """
        with jobs_have(FaultProcess):
            job = ask("prepare_long", gate=str(gate.path))

            with worker(settings=altered({LEASE: 0.2}, process=FaultProcess)):
                first = gate.arrival().pid
                with worker(args=["--drain"], settings=altered(process=FaultProcess)) as other:
                    other.wait()
                while_prepared = (is_held(row(job)), gate.has_arrival(), facts(job))
                processes.send(first, signal.SIGKILL)
                second = gate.arrival().pid
                gate.let_go()
                until(is_all_done)

            assert while_prepared == (False, False, ("", 1, 0))
            assert first != second
            assert violations([job], accepted=1) == []
            assert facts(job) == ("succeeded", 2, 1)


class TestFrozenOwner:
    """
    An owner that seems dead and is not can't do harm.
    """

    def test_attempt_that_runs_is_not_taken_over_though_its_worker_looks_dead(self, gate: Gate) -> None:
        """
        B03: with parent and clerk stopped, and nothing heard of them for an hour, the row's lock keeps the row.
        """
        job = ask("wait", gate=str(gate.path))
        with worker(settings=altered(SHORT_LEASE)) as first:
            attempt = gate.arrival().pid
            others = [pid for pid in first.members() if pid != attempt]
            for pid in others:
                processes.send(pid, signal.SIGSTOP)
            Worker.objects.update(last_seen_at=FromNow(-3600))
            until(lambda: ahead("run_at") < 0)

            with worker(args=["--drain"], settings=altered(SHORT_LEASE)) as second:
                status = second.wait()
            was_held = is_held(row(job))
            gate.let_go()
            until(lambda: row(job).is_completed)
            for pid in others:
                processes.send(pid, signal.SIGCONT)
            until(is_all_done)

        assert (status, was_held) == (0, True)
        assert violations([job], accepted=1) == []
        assert facts(job) == ("succeeded", 1, 0)

    def test_children_that_were_stopped_after_their_claim_change_nothing_any_more(
        self, gate: Gate, ledger: Ledger
    ) -> None:
        """
        D39: two rows are taken over and done by another worker. One child wakes and begins nothing; the other one is
        killed, and the account of its death comes too late to change the row.
        """
        jobs = [ask("act") for _ in range(2)]
        with worker(concurrency=2, settings=altered(SHORT_LEASE), points={"after_claim": gate.deed}) as first:
            gate.arrival()
            killed = gate.arrival().pid
            with worker():
                until(is_all_done)
            before = [row(job).modified for job in jobs]

            processes.send(killed, signal.SIGKILL)
            until(lambda: killed not in first.children())
            gate.let_go(50)
            until(lambda: "lost its row" in first.log)
            later = ask("quick")
            until(is_all_done)

        assert violations([*jobs, later], accepted=3) == []
        assert [facts(job) for job in (*jobs, later)] == [*[("succeeded", 2, 1)] * 2, ("succeeded", 1, 0)]
        assert [row(job).modified for job in jobs] == before
        assert ledger.count("write_effect") == 3

    def test_attempt_whose_session_was_ended_keeps_nothing_and_says_nothing(
        self, gate: Gate, tmp_path: Path, ledger: Ledger
    ) -> None:
        """
        B05: its code runs on, and comes to its end while the next attempt has claimed the row and not yet begun; only
        that one is kept, and nothing of the first one's failure is written over it.
        """
        job = ask("wait", gate=str(gate.path))
        with worker(settings=altered(SHORT_LEASE)) as first, gates.gate(tmp_path, "claimed") as claimed:
            gate.arrival()
            sql("SELECT pg_terminate_backend(%s)", row(job).backend_pid)

            with worker(settings=altered({LEASE: 300.0}), points={"after_claim": claimed.deed}):
                claimed.arrival()
                gate.let_go()
                until(lambda: "its end was not recorded" in first.log)
                claimed.let_go(20)
                gate.arrival()
                gate.let_go()
                until(is_all_done)

        assert violations([job], accepted=1) == []
        assert facts(job) == ("succeeded", 2, 1)
        assert ledger.count("waiting", "stop") == 2


class TestRowsThatCannotBegin:
    """
    A row that can't even be begun keeps nobody else from running.
    """

    def test_row_whose_process_breaks_as_it_is_imported_leaves_the_others_alone(self) -> None:
        """
        B07: the good ones run, and the bad one ends at its limit, with what broke.
        """
        jobs = [ask("quick") for _ in range(4)]
        bad = row(jobs[1])
        broken = {"process_class": "tests.worker.unimportable.Process", "max_errors": 1}
        TransitionMessage.objects.filter(pk=bad.pk).update(**broken)

        with worker() as running:
            until(is_all_done)
            log = running.log

        bad.refresh_from_db()
        assert [row(job).outcome for job in jobs].count("succeeded") == 3
        assert (bad.outcome, bad.errors_count) == ("failed", 1)
        assert "nothing can import this" in bad.last_error_message
        assert "ended" not in log

    def test_worker_goes_on_when_the_system_refuses_to_fork(self) -> None:
        """
        B07: a fork that is refused is tried again; the children that are there go on.
        """
        with worker(concurrency=2, settings=altered(at_boot=["run_out_of_processes"])) as running:
            jobs = [ask("quick") for _ in range(4)]
            until(is_all_done)
            running.wait_ready()

        assert violations(jobs, accepted=4) == []


class TestForks:
    """
    What other threads do at the moment of a fork reaches no child.
    """

    def test_children_are_forked_beside_a_thread_that_logs_all_the_time(self) -> None:
        """
        B19: many forks, no child hangs, and the worker says that a thread is there.
        """
        jobs = [ask("quick") for _ in range(16)]

        with worker(
            concurrency=2,
            args=["--max-attempts-per-child", "2"],
            settings=altered(at_boot=["start_a_thread_that_logs"]),
        ) as running:
            until(is_all_done)
            log = running.log

        assert violations(jobs, accepted=16) == []
        assert "1 thread(s) run as the children are forked (noise)" in log
        assert "has not begun" not in log

    def test_child_that_hangs_as_it_begins_is_replaced(self) -> None:
        """
        B19: a child that waits for ever for a lock since its fork never says a word, and is ended after a time.
        """
        job = ask("quick")

        with worker(settings=altered({BOOT_LIMIT: 1.0}, at_boot=["hang_the_first_child"])) as running:
            until(is_all_done)
            log = running.log

        assert violations([job], accepted=1) == []
        assert "has not begun after 1 s and is replaced" in log


def test_worker_whose_clock_is_wrong_goes_by_that_of_the_database(
    gate: Gate, tmp_path: Path, clock_ahead: dict[str, str]
) -> None:
    """
    B17: ten minutes of pause and a live claim hold for a worker that believes ten minutes to be over, and no time that
    it writes is ahead: when it was seen, when rows began, failed and ended, when one is due again.
    """
    paused = ask("fail_and_pause")
    with worker(args=["--drain"]) as first:
        first.wait()
    claimed = ask("quick")
    with (
        gates.gate(tmp_path, "other") as other,
        worker(points={"after_claim": gate.deed}, settings=altered({LEASE: 300.0})),
    ):
        gate.arrival()

        with worker(args=["--drain"], env=clock_ahead) as wrong:
            own = [ask("wait", gate=str(other.path)), ask("fail_and_pause")]
            other.arrival()
            seen = ahead("last_seen_at", WORKERS)
            other.let_go()
            status = wrong.wait()
        attempts = [row(job).attempts_started for job in (paused, claimed, *own)]
        gate.let_go(20)
        until(lambda: {message.pk for message in open_rows()} == {row(paused).pk, row(own[1]).pk})

    assert status == 0
    assert attempts == [1, 1, 1, 1]
    assert facts(claimed) == ("succeeded", 1, 0)
    assert seen <= 0
    assert ahead("GREATEST(started_at, completed_at, last_error_dt, modified, created)") <= 0
    assert 500 < ahead("run_at") <= 600
