"""
Prove that an attempt has its limits: of time, of what it may do to its process, and of what it leaves behind.
"""

from __future__ import annotations

import time

import pytest

from django_logic.background.models import TransitionMessage
from tests.worker.altered import GROWN_UP, LOOK_EVERY, UPKEEP_EVERY, UPKEEP_LIMIT, altered
from tests.worker.asking import ask, is_all_done
from tests.worker.fault_process import BestEffortProcess, FaultProcess, jobs_have
from tests.worker.gates import Gate
from tests.worker.harness import is_held, open_rows, row, until, worker
from tests.worker.invariants import violations
from tests.worker.obstacles import KEY, closed_lock
from tests.worker_app.ledger import Ledger
from tests.worker_app.models import Effect, Job
from tests.worker_app.process import MAX_ERRORS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres", "ledger")]

#: How hooks end their process, and what their row says of it.
ENDS = {
    "exit": "left with exit status 7",
    "exit_0": "left with exit status 0",
    "kill": "was ended by SIGKILL",
    "abort": "was ended by SIGABRT",
}


def workers_pids(jobs: list[Job]) -> list[int]:
    """
    List the processes that did these jobs, in the order in which they did them.
    """
    wanted = [job.pk for job in jobs]
    return list(Effect.objects.filter(job_id__in=wanted).order_by("id").values_list("pid", flat=True))


class TestTime:
    """
    An attempt past its time limit is killed and costs exactly one error.
    """

    def test_attempt_past_its_limit_is_killed_and_tried_again(self, gate: Gate, ledger: Ledger) -> None:
        """
        D42: one charge for each attempt, whether the hook waits or keeps the interpreter busy; the worker goes on.
        """
        waits, spins = ask("overrun", gate=str(gate.path)), ask("spin")

        with worker(concurrency=2) as running:
            until(is_all_done)
            is_running = running.is_running()

        assert is_running
        assert violations([waits, spins], accepted=2) == []
        for job in (waits, spins):
            assert (job.state, row(job).outcome, row(job).errors_count) == ("failed", "failed", 3)
            assert row(job).last_error_message.startswith("[timeout] killed after 1.")
        assert ledger.count("warned", "stop") == 2

    def test_lock_of_a_killed_attempt_outlives_it_without_holding_up_other_deadlines(self, gate: Gate) -> None:
        """
        D43: the server does not notice that the client of a long statement is gone, so the row stays locked and the
        error can't be written; others are killed and accounted for meanwhile, and it lands once the server lets go.
        """
        with jobs_have(FaultProcess), closed_lock() as open_lock:
            held = ask("query_long", key=KEY)
            with worker(concurrency=2, settings=altered(process=FaultProcess)) as running:
                until(lambda: row(held).attempts_started == 1)
                before = set(running.children())
                until(lambda: before - set(running.children()))
                other = ask("overrun", gate=str(gate.path))
                until(lambda: row(other).errors_count == 2)
                while_held = (row(held).errors_count, is_held(row(held)))
                open_lock()
                gate.let_go(3)
                until(is_all_done)

            assert while_held == (0, True)
            assert violations([held, other], accepted=2) == []
            assert (row(held).outcome, row(held).attempts_started, row(held).errors_count) == ("succeeded", 2, 1)
            assert row(held).last_error_message.startswith("[timeout] killed after 0.")

    def test_safety_nets_work_while_every_child_is_busy(self, gate: Gate) -> None:
        """
        D40: a spent row is finished though the only child has a long attempt.
        """
        with worker(settings=altered({UPKEEP_EVERY: 0.3})):
            ask("wait", gate=str(gate.path))
            gate.arrival()
            spent = ask("aside")
            TransitionMessage.objects.filter(pk=row(spent).pk).update(attempts_started=3, errors_count=2)
            until(lambda: row(spent).is_completed)
            gate.let_go()
            until(lambda: {message.queue_name for message in open_rows()} <= {"side"})

        spent.refresh_from_db()
        assert (spent.state, row(spent).outcome, row(spent).errors_count) == ("failed", "failed", 3)
        assert row(spent).duration_ms is None

    def test_upkeep_that_hangs_in_a_failure_callback_is_ended_and_the_rest_goes_on(
        self, gate: Gate, ledger: Ledger
    ) -> None:
        """
        D44: without durable callbacks the nets run failure callbacks; one that hangs is ended, deadlines fire
        meanwhile, and the next spread finishes the rows behind it.
        """
        with jobs_have(BestEffortProcess):
            stuck = [ask("hang_when_failed") for _ in range(2)]
            for job in stuck:
                TransitionMessage.objects.filter(pk=row(job).pk).update(
                    attempts_started=3, errors_count=2, queue_name="elsewhere"
                )
            settings = altered({UPKEEP_EVERY: 1.0, UPKEEP_LIMIT: 3.0}, process=BestEffortProcess)
            with worker(settings=settings) as running:
                until(lambda: ledger.count("hanging_at_first") == 1)
                other = ask("overrun", gate=str(gate.path))
                until(lambda: row(other).errors_count == 1)
                is_hanging = ledger.count("hanging_at_first") == 1
                gate.let_go(3)
                until(is_all_done)
                until(lambda: ledger.count("hanging_at_first", "stop") == 1)
                log = running.log

            assert is_hanging
            assert "Upkeep took longer than 3 s" in log
            assert violations([*stuck, other], accepted=3) == []
            assert [row(job).outcome for job in stuck] == ["failed", "failed"]


class TestProcesses:
    """
    What a hook does to its process is an attempt's end, not the worker's.
    """

    def test_hook_that_ends_its_process_costs_one_attempt(self) -> None:
        """
        D38: whatever the status, 0 included, it is a crash; the row says which, and is tried again. D45: where a
        SystemExit was raised is in the log. D56: the safety nets are spread at the start, not a minute later.
        """
        spent = ask("aside")
        rows = TransitionMessage.objects.filter(pk=row(spent).pk)
        rows.update(attempts_started=MAX_ERRORS, errors_count=MAX_ERRORS - 1, queue_name="nobody")
        jobs = {how: ask("crash", how=how) for how in ENDS} | {"SystemExit": ask("exit", status=0)}

        with worker() as running:
            until(lambda: {message.queue_name for message in open_rows()} <= {"nobody"})
            until(lambda: row(spent).is_completed)
            is_running, log = running.is_running(), running.log

        assert is_running
        assert violations(jobs.values(), accepted=len(ENDS) + 1) == []
        for how, told in {**ENDS, "SystemExit": ENDS["exit_0"]}.items():
            message = row(jobs[how])
            assert (message.outcome, message.attempts_started, message.errors_count) == ("succeeded", 2, 1)
            assert message.last_error_message == f"[crashed] its process {told}"
        assert "raise SystemExit(status)" in log

    def test_child_is_replaced_after_its_number_of_attempts(self) -> None:
        """
        With at most two attempts a child, seven rows, each with its callback, take seven children; nobody complains.
        """
        jobs = [ask("quick") for _ in range(7)]

        with worker(args=["--max-attempts-per-child", "2"]) as running:
            until(is_all_done)
            log = running.log

        pids = workers_pids(jobs)
        assert len(pids) == 7
        assert max(pids.count(pid) for pid in pids) <= 2
        assert "ERROR" not in log

    def test_log_lines_that_a_process_has_buffered_are_written_once_as_it_leaves(self) -> None:
        """
        D45: children leave without Python's own end, and are forked from a parent that may have buffered lines too.
        """
        jobs = [ask("quick") for _ in range(4)]

        with worker(
            args=["--drain", "--max-attempts-per-child", "2"], settings=altered(at_boot=["buffer_logs"])
        ) as running:
            running.wait()
            log = running.log

        assert [log.count(f"of Job {job.pk}: working -> done") for job in jobs] == [1] * 4
        assert log.count("queues work, 1 at a time") == 1

    def test_child_that_grew_is_replaced(self) -> None:
        """
        A child that keeps what it took makes way for a fresh one; one that does not grow stays.
        """
        keeping = [ask("eat", mebibytes=48, is_kept=True) for _ in range(2)]
        modest = [ask("eat", mebibytes=48) for _ in range(3)]

        with worker(args=["--max-growth", "24"], settings=altered({GROWN_UP: 1, LOOK_EVERY: 1})) as running:
            until(is_all_done)
            log = running.log

        pids = workers_pids([*keeping, *modest])
        assert pids[0] == pids[1]
        assert pids[1] != pids[2]
        assert len(set(pids[2:])) == 1
        assert "ERROR" not in log

    def test_attempt_starts_where_no_trace_of_the_one_before_is_left(self) -> None:
        """
        Context variables, language and time zone of one attempt do not reach the next one in the same child.
        """
        with jobs_have(FaultProcess):
            jobs = [ask("leave_traces"), ask("find_no_trace")]

            with worker(settings=altered(process=FaultProcess)):
                until(is_all_done)

            pids = workers_pids(jobs)
            assert row(jobs[1]).outcome == "succeeded", row(jobs[1]).last_error_message
            assert len(set(pids)) == 1

    def test_processes_and_threads_of_a_hook_are_its_own(self) -> None:
        """
        The worker reaps its own children only, so `subprocess` gets the status it waits for; a thread that never ends
        holds up neither the replacement of its child nor the end of the worker.
        """
        jobs = [ask("leave_a_thread"), ask("spawn")]

        with worker(args=["--max-attempts-per-child", "1"]) as running:
            until(is_all_done)
            began = time.monotonic()
            running.term()
            status = running.wait()
            took = time.monotonic() - began

        assert status == 0
        assert took < 10
        assert [(row(job).outcome, row(job).errors_count) for job in jobs] == [("succeeded", 0)] * 2

    def test_one_row_takes_one_of_many_children(self, gate: Gate) -> None:
        """
        D48: the others stay free for what comes.
        """
        first = ask("wait", gate=str(gate.path))

        with worker(concurrency=3) as running:
            gate.arrival()
            others = [ask("quick") for _ in range(3)]
            until(lambda: all(row(job).is_completed for job in others))
            has_second = gate.has_arrival()
            sessions = len(running.sessions())
            gate.let_go()
            until(is_all_done)

        assert not has_second
        assert row(first).attempts_started == 1
        # Three for attempts, one for accounts, one to listen, and upkeep's for a moment.
        assert sessions <= 6
