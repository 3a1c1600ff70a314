"""
Prove that a worker minds its processes: as the first of a container, beside orphans, and when it is killed alone.
"""

from __future__ import annotations

import signal

import pytest

from tests.worker import processes
from tests.worker.altered import altered
from tests.worker.asking import ask, is_all_done
from tests.worker.fault_process import FaultProcess, jobs_have
from tests.worker.harness import row, until, worker
from tests.worker.invariants import violations
from tests.worker.namespaces import can_unshare, first_process

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres", "ledger")]


def zombies_of(pid: int) -> list[int]:
    """
    List the children of a process that have ended and were not waited for.
    """
    found = []
    for entry in processes.PROC.iterdir():
        process = processes.look_up(int(entry.name)) if entry.name.isdigit() else None
        if process is not None and process.parent == pid and process.state == processes.ZOMBIE:
            found.append(process.pid)
    return found


class TestFirstProcess:
    """
    In a container the worker is process 1: signals have no default there, and orphans are its own.
    """

    @pytest.fixture(autouse=True)
    def _namespaces(self) -> None:
        if not can_unshare():
            pytest.skip("making a namespace of processes is not permitted here")

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_first_process_works_reaps_orphans_and_stops_when_told(self, number: signal.Signals) -> None:
        """
        Work is done, a process that a hook left behind is adopted and buried, and the status is 0.
        """
        with jobs_have(FaultProcess):
            with first_process(altered(process=FaultProcess)) as (running, pid):
                jobs = [ask("orphan"), ask("quick")]
                until(lambda: len(processes.children_of(pid)) >= 3)
                until(is_all_done)
                until(lambda: len(processes.children_of(pid)) == 2 and not zombies_of(pid))
                processes.send(pid, number)
                status = running.wait()

            assert status == 0
            assert violations(jobs, accepted=2) == []


def test_worker_that_is_killed_alone_takes_all_its_processes_along() -> None:
    """
    The clerk waits and a hook keeps the interpreter busy; both end with the parent.
    """
    ask("spin")

    with worker() as running:
        until(lambda: running.health_file.exists())
        members = running.members()
        running.kill9()
        until(lambda: not running.members())

    assert len(members) >= 3


def test_clerk_that_is_killed_is_replaced_and_loses_no_account() -> None:
    """
    The parent keeps an account until it has landed, so the next clerk enters it.
    """
    with worker(args=["--poll", "0.5"]) as running:
        running.wait_ready()
        clerk = running.children()[0]
        processes.send(clerk, signal.SIGSTOP)
        job = ask("crash", how="kill")
        until(lambda: row(job).attempts_started == 1 and len(running.children()) >= 2)
        processes.send(clerk, signal.SIGKILL)
        until(is_all_done)
        log = running.log

    assert violations([job], accepted=1) == []
    assert (row(job).outcome, row(job).attempts_started, row(job).errors_count) == ("succeeded", 2, 1)
    assert row(job).last_error_message == "[crashed] its process was ended by SIGKILL"
    assert "The clerk ended (its process was ended by SIGKILL) and is replaced" in log
