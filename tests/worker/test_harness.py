"""
Prove that what the worker tests stand on does what they believe: a harness that lies proves nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import psycopg
import pytest
from django.db import connection
from django.db.utils import OperationalError

from django_logic.background import attempt
from django_logic.background.models import MessageQuerySet, TransitionMessage
from tests.worker import processes
from tests.worker.asking import ask
from tests.worker.gates import Gate
from tests.worker.harness import database_facts, is_held, open_rows, row, sql, until, worker
from tests.worker.invariants import violations
from tests.worker.pooler import Pooler
from tests.worker.private import PrivateServer, Stop
from tests.worker_app.ledger import VARIABLE, Entry, Ledger
from tests.worker_app.models import Effect, Job

ROOT = Path(__file__).parents[2]
# Prints its wall clock and how long a sleep of 0.2 seconds took by the monotonic clock.
TELL_THE_TIME = """
import time
from tests.worker.clock import mend_sleep
mend_sleep()
began = time.monotonic()
time.sleep(0.2)
print(time.time(), time.monotonic() - began)
"""


def entry(hook: str, phase: str, *, pid: int = 1, at: float = 0.0) -> Entry:
    """
    Make a line of a ledger.
    """
    return Entry(hook=hook, phase=phase, job=1, transition_id=str(uuid.uuid4()), pid=pid, at=at)


def finish_here() -> None:
    """
    Run everything that is open in this process.
    """
    while messages := open_rows():
        attempt.run(messages[0].pk)


def twin_of(effect: Effect) -> Effect:
    """
    Make an unsaved copy.
    """
    effect.pk = None
    return effect


def rows_of(kind: str) -> MessageQuerySet:
    """
    Return the rows of a kind.
    """
    return TransitionMessage.objects.filter(kind=kind)


def job_began() -> datetime:
    """
    Return when the first row was made.
    """
    return TransitionMessage.objects.earliest("id").created


def orphans_of(pid: int) -> list[int]:
    """
    List the members of a session whose parent is not its leader.
    """
    return sorted(set(processes.members_of(pid)) - {pid} - set(processes.children_of(pid)))


class TestWaiting:
    """
    `until` asks for a bounded time.
    """

    def test_until_returns_the_first_true_answer(self) -> None:
        """
        A condition is asked again until it answers, and its answer comes back.
        """
        answers = iter([None, 0, "", 7, 8])

        assert until(lambda: next(answers)) == 7

    def test_until_gives_up_and_names_the_last_answer(self) -> None:
        """
        A condition that never holds fails the test in time.
        """
        with pytest.raises(AssertionError, match=r"within 0\.1 seconds. The last answer was 0"):
            until(lambda: 0, 0.1)

    def test_until_outlasts_the_errors_it_was_told_of(self) -> None:
        """
        An error that was named counts as a no, any other is passed on.
        """
        tries = iter([True, True, False])

        def ask() -> str:
            if next(tries):
                raise ValueError
            return "there"

        with pytest.raises(ValueError):  # noqa: PT011 - it has no text
            until(ask)
        assert until(ask, despite=(ValueError,)) == "there"


class TestLedger:
    """
    The ledger outlives rollbacks and crashes.
    """

    def test_lines_of_many_writers_never_mix(self, ledger: Ledger) -> None:
        """
        Four writers at once leave every line whole.
        """

        def write(pid: int) -> None:
            for _ in range(200):
                ledger.add(entry("effect", "start", pid=pid))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))

        assert [ledger.count("effect", job=1), ledger.count("other")] == [800, 0]

    def test_overlap_is_seen_only_where_two_runs_were_open_together(self, tmp_path: Path) -> None:
        """
        Runs one after the other, and a run that was killed, overlap with nothing.
        """
        apart, together = Ledger(tmp_path / "apart"), Ledger(tmp_path / "together")
        for phase, pid, at in (("start", 1, 1.0), ("start", 2, 2.0), ("stop", 2, 3.0), ("start", 3, 4.0)):
            apart.add(entry("slow", phase, pid=pid, at=at))
        for phase, pid, at in (("start", 1, 1.0), ("start", 2, 2.0), ("stop", 2, 3.0), ("stop", 1, 4.0)):
            together.add(entry("slow", phase, pid=pid, at=at))

        assert apart.overlaps() == []
        assert [(first.pid, second.pid) for first, second in together.overlaps()] == [(1, 2)]


class TestProcesses:
    """
    Processes are found through /proc.
    """

    def test_orphans_of_a_session_are_found(self) -> None:
        """
        A grandchild whose parent has died is still a member of the session, and no longer a child.
        """
        program = "import os, time\nif not os.fork():\n    os.fork() and os._exit(0)\ntime.sleep(60)"
        with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as leader:
            try:
                orphan = until(lambda: orphans_of(leader.pid))[0]
                found = processes.look_up(orphan)
            finally:
                os.killpg(leader.pid, signal.SIGKILL)

        assert found is not None
        assert found.session == leader.pid

    def test_zombie_does_not_count_as_running(self) -> None:
        """
        A process that has ended but was not waited for is gone.
        """
        with subprocess.Popen([sys.executable, "-c", ""]) as program:
            until(lambda: not processes.is_running(program.pid))

            found = processes.look_up(program.pid)

        assert found is not None
        assert found.state == processes.ZOMBIE


@pytest.mark.django_db(transaction=True)
class TestDatabases:
    """
    Tests look at, and interfere with, real servers.
    """

    def test_admin_statement_sees_committed_rows_and_leaves_no_session(self) -> None:
        """
        `sql` runs beside the test's own connection.
        """
        job = Job.objects.create()

        assert sql("SELECT state FROM worker_app_job WHERE id = %s", job.pk) == [("new",)]
        assert sql("UPDATE worker_app_job SET state = %s", "done") == []
        job.refresh_from_db()
        assert job.state == "done"

    def test_pooler_lends_one_server_session_to_several_clients(self, pooler: Pooler) -> None:
        """
        In transaction mode two clients that take turns get the same backend.
        """
        address = {"host": pooler.facts["HOST"], "port": pooler.facts["PORT"], "dbname": pooler.facts["NAME"]}
        clients = [
            psycopg.connect(**address, user=pooler.facts["USER"], autocommit=True, prepare_threshold=None)
            for _ in range(2)
        ]

        backends = {client.execute("SELECT pg_backend_pid()").fetchone() for client in clients}
        pooler.command("RECONNECT")
        later = clients[0].execute("SELECT pg_backend_pid()").fetchone()

        assert len(backends) == 1
        assert later not in backends
        for client in clients:
            client.close()

    def test_crashed_server_comes_back_with_what_was_committed(self, private: PrivateServer) -> None:
        """
        An immediate stop cuts every session, refuses new ones, and loses nothing that was committed.
        """
        job = Job.objects.create()

        with private.down(Stop.IMMEDIATE), pytest.raises(OperationalError):
            job.refresh_from_db()
        is_back = until(lambda: Job.objects.filter(pk=job.pk).exists(), despite=(OperationalError,))

        assert is_back
        assert connection.settings_dict["HOST"] == private.facts["HOST"]
        assert "not properly shut down" in (private.folder / "server.log").read_text()

    def test_facts_lead_another_process_to_the_test_database(self, only_postgres: None) -> None:
        """
        The facts name the database of this session, and the name under which its sessions are found.
        """
        facts = database_facts("somebody", {"default": {"CONN_MAX_AGE": 7}})["default"]

        assert facts["NAME"] == connection.settings_dict["NAME"]
        assert facts["CONN_MAX_AGE"] == 7
        assert facts["OPTIONS"]["application_name"] == "somebody"
        assert "TEST" not in facts


@pytest.mark.django_db(transaction=True)
class TestInvariants:
    """
    The judge of the kill tests sees what it is there to see.
    """

    def test_sound_work_is_not_blamed(self, ledger: Ledger) -> None:
        """
        Success, failure and an action leave nothing to complain of.
        """
        jobs = [Job.objects.create() for _ in range(3)]
        jobs[0].process.quick()
        jobs[1].process.fail(times=99)
        jobs[2].process.act()

        finish_here()

        assert [job.state for job in jobs] == ["working", "working", "new"]
        assert violations(jobs, accepted=3, ledger=ledger) == []
        assert [job.state for job in jobs] == ["done", "failed", "new"]

    @pytest.mark.parametrize(
        ("damage", "complaint"),
        [
            (lambda job: Effect.objects.all().delete(), "ended 'succeeded' with 0 effects"),
            (lambda job: Effect.objects.bulk_create([twin_of(Effect.objects.earliest("id"))]), "with 2 effects"),
            (lambda job: Job.objects.update(state="failed"), "its state is 'failed' and its history ends in 'done'"),
            (lambda job: job.process.history.filter(to_state="done").delete(), "with 0 moves to its target"),
            (lambda job: job.process.history.filter(sequence=1).delete(), "its history is broken"),
            (lambda job: TransitionMessage.objects.update(attempts_started=4), "had 4 attempts"),
            (lambda job: job.process.quick(), "is open"),
            (lambda job: rows_of("callback").delete(), "is followed by [('next', 'quick')] instead of"),
            (lambda job: rows_of("callback").update(hook_name="warned"), "is followed by [('callback', 'warned')"),
            (lambda job: rows_of("next").update(transition_id=uuid.uuid4()), "led to 0 transitions"),
            (lambda job: rows_of("transition").update(created=job_began()), "(process.follow callback told) had ended"),
            (lambda job: Path(os.environ[VARIABLE]).unlink(), "its hook never did"),
        ],
    )
    def test_damage_is_named(self, damage: Callable[[Job], object], complaint: str, ledger: Ledger) -> None:
        """
        Each way in which work may be lost, doubled or done out of order shows as a line.
        """
        job = Job.objects.create()
        job.process.follow()
        finish_here()
        sound = violations([job], accepted=1, ledger=ledger)

        damage(job)

        assert sound == []
        assert complaint in "; ".join(violations([job], ledger=ledger))

    def test_callbacks_out_of_order_are_named(self, ledger: Ledger) -> None:
        """
        A callback that began before the one ahead of it had ended shows as a line.
        """
        job = ask("fail_after", times=0)
        finish_here()
        lines = ledger.path.read_text().splitlines(keepends=True)
        moved = [line for line in lines if '"told"' in line]

        ledger.path.write_text(
            "".join([*moved, *(line for line in lines if line not in moved)]).replace('"at": ', '"at": -')
        )

        assert "began before the callback ahead of it had ended" in "; ".join(violations([job], ledger=ledger))


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("only_postgres")
class TestWorker:
    """
    A worker of a test is a real one, and nothing of it is left behind.
    """

    def test_worker_runs_what_is_due_and_stops_when_told(self, ledger: Ledger) -> None:
        """
        Work is done by a child of the worker, in a session that bears its name; SIGTERM ends it with status 0.
        """
        job = Job.objects.create()

        with worker(concurrency=2) as running:
            running.wait_ready()
            job.process.quick()
            until(lambda: not open_rows())
            children, sessions = running.children(), running.sessions()
            running.term()
            status = running.wait()
            left = running.members()

        assert (status, left) == (0, [])
        assert Effect.objects.get(job_id=job.pk).pid in children
        assert len(sessions) >= 3
        assert ledger.count("write_effect", "stop") == 1
        assert not running.folder.exists()

    def test_block_ends_workers_that_were_left_running(self, gate: Gate) -> None:
        """
        Processes and sessions of a worker are gone after the block, also of one in the middle of an attempt.
        """
        job = Job.objects.create()
        job.process.wait(gate=str(gate.path))

        with worker() as running:
            waits = gate.arrival()
            was_held = is_held(row(job))

        assert was_held
        assert not processes.is_running(waits.pid)
        assert (running.members(), running.sessions()) == ([], [])
        assert not is_held(row(job))

    def test_worker_that_does_not_start_says_why(self) -> None:
        """
        A worker that ends at once fails the test with its status and its log.
        """
        with pytest.raises(AssertionError, match="ended with status 2") as raised, worker(args=["--sing"]) as running:
            running.wait_ready()

        assert "unrecognized arguments: --sing" in raised.value.__notes__[0]

    def test_settings_of_a_test_reach_the_worker(self) -> None:
        """
        What a test puts over the settings is what the worker runs with.
        """
        with worker(settings={"DJANGO_LOGIC": {"LOCK_TIMEOUT": "long"}}) as running:
            status = running.wait()

            assert status == 1
            assert "LOCK_TIMEOUT" in running.log

    def test_worker_serves_through_a_pooler(self, pooler: Pooler) -> None:
        """
        A worker given other databases uses those: here all its sessions are pgbouncer's.
        """
        job = Job.objects.create()

        with worker(databases={"default": pooler.facts}) as running:
            running.wait_ready()
            job.process.quick()
            until(lambda: not open_rows())

        assert "login attempt" in pooler.log
        assert violations([job]) == []

    def test_worker_with_a_wrong_clock_runs(self, clock_ahead: dict[str, str]) -> None:
        """
        libfaketime leaves a worker able to work and to sleep.
        """
        job = Job.objects.create()

        with worker(env=clock_ahead) as running:
            running.wait_ready()
            job.process.quick()
            until(lambda: not open_rows())

        assert violations([job]) == []

    def test_worker_of_a_private_server_outlives_its_crash(self, private: PrivateServer) -> None:
        """
        The server is stopped at once and started again; the same worker serves it on.
        """
        job, later = Job.objects.create(), Job.objects.create()

        with worker(args=["--poll", "0.5"]) as running:
            running.wait_ready()
            job.process.quick()
            until(lambda: not open_rows())
            private.restart(Stop.IMMEDIATE)
            until(lambda: not open_rows(), despite=(OperationalError,))
            later.process.quick()
            until(lambda: not open_rows())
            is_the_same = running.is_running()

        assert is_the_same
        assert violations([job, later]) == []


def test_wrong_clock_moves_the_wall_clock_alone(clock_ahead: dict[str, str]) -> None:
    """
    A process under libfaketime is ten minutes ahead, while time still passes as it does.
    """
    environment = {**os.environ, **clock_ahead, "PYTHONPATH": str(ROOT)}

    told = subprocess.run([sys.executable, "-c", TELL_THE_TIME], env=environment, capture_output=True, check=True)

    wall, slept = map(float, told.stdout.split())
    assert 590 < wall - time.time() < 610
    assert 0.2 <= slept < 5
