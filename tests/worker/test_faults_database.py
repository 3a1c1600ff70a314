"""
Prove that work survives what happens to a database: it crashes, is away, ends sessions, and has other users.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from django_logic.background.models import TransitionMessage
from tests.worker import processes
from tests.worker.altered import SHORT_LEASE, UPKEEP_EVERY, altered
from tests.worker.asking import ask, ask_at_once, is_all_done
from tests.worker.gates import Gate
from tests.worker.harness import open_rows, row, sql, until, worker
from tests.worker.invariants import violations
from tests.worker.obstacles import operator_holds
from tests.worker.private import PrivateServer, private_server
from tests.worker_app.ledger import Ledger
from tests.worker_app.models import Job
from tests.worker_app.process import MAX_ERRORS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres", "ledger")]

#: Errors of a database that is not there, or is on its way back.
AWAY = (DatabaseError,)
SEED = 20_240


def spent_rows(count: int, queue: str) -> list[Job]:
    """
    Make jobs whose last attempt began and left no record, in a queue that no worker of the test serves.
    """
    jobs = ask_at_once(count)
    TransitionMessage.objects.update(queue_name=queue, attempts_started=MAX_ERRORS, errors_count=MAX_ERRORS - 1)
    return jobs


def completed() -> int:
    """
    Count the transitions that have ended.
    """
    return TransitionMessage.objects.transitions().filter(is_completed=True).count()


def has_completed(count: int) -> bool:
    """
    Tell whether so many transitions have ended.
    """
    return completed() >= count


@pytest.fixture(scope="class")
def own_server(django_db_setup: None, django_db_blocker: Any) -> Iterator[PrivateServer]:
    """
    Move the alias `default` to a durable server of the class, whose tables are emptied after each test.
    """
    with django_db_blocker.unblock():
        if connection.vendor != "postgresql":
            pytest.skip("the promise is made for PostgreSQL")
        # Only PostgreSQL crashes here, not the machine, so what was written is kept without waiting for the disk.
        with private_server({"fsync": "off"}) as server:
            yield server


class TestCrash:
    """
    PostgreSQL goes down without a word and comes back.
    """

    def test_server_that_crashes_under_load_costs_no_work_and_no_second_effect(self, own_server: PrivateServer) -> None:
        """
        Every accepted call ends once, in a worker that outlived two crashes.
        """
        jobs = ask_at_once(50)

        with worker(concurrency=2, settings=altered(SHORT_LEASE)) as running:
            for done in (15, 35):
                until(partial(has_completed, done), despite=AWAY)
                own_server.restart()
            until(is_all_done, 60, despite=AWAY)
            is_running = running.is_running()

        assert is_running
        assert violations(jobs, accepted=50) == []
        assert {row(job).outcome for job in jobs} == {"succeeded"}

    def test_safety_nets_take_up_what_a_crash_interrupted(self, own_server: PrivateServer) -> None:
        """
        B06: 250 spent rows; the server crashes while upkeep goes through them, and a later spread finishes the rest.
        The log tells of the crash and not of each row that was still to come.
        """
        jobs = spent_rows(250, "elsewhere")

        with worker(settings=altered({UPKEEP_EVERY: 0.5, **SHORT_LEASE})) as running:
            until(lambda: completed() > 10, despite=AWAY)
            own_server.restart()
            before = until(completed, despite=AWAY)
            until(lambda: completed() == 250, 60, despite=AWAY)
            log = running.log

        assert before < 250
        assert log.count("could not be finished") <= 3
        assert {job.state for job in Job.objects.filter(pk__in=[job.pk for job in jobs])} == {"failed"}
        assert set(TransitionMessage.objects.transitions().values_list("outcome", flat=True)) == {"failed"}

    def test_crash_while_the_database_is_away_is_accounted_for_later(
        self, own_server: PrivateServer, gate: Gate
    ) -> None:
        """
        D43: the error is recorded once the database is back. The health file is gone meanwhile, and a worker that is
        told to stop while nobody can be told of it leaves with status 0, without a page of traceback.
        """
        job = ask("wait", gate=str(gate.path))
        with worker(concurrency=2, args=["--poll", "0.2"]) as running:
            victim = gate.arrival().pid
            running.wait_ready()
            # A claim does not wait for the disk, so a crash right after it would leave nothing to account for.
            sql("CHECKPOINT")
            with own_server.down():
                processes.send(victim, signal.SIGKILL)
                until(lambda: not running.health_file.exists())
            gate.let_go()
            until(is_all_done, despite=AWAY)
            until(running.health_file.exists)
            with own_server.down():
                until(lambda: not running.health_file.exists())
                running.term()
                status = running.wait()
            log = running.log
        connection.close()

        assert violations([job], accepted=1) == []
        assert (row(job).outcome, row(job).attempts_started, row(job).errors_count) == ("succeeded", 2, 1)
        assert row(job).last_error_message.startswith("[crashed]")
        assert status == 0
        assert "Traceback" not in log


class TestEndedSessions:
    """
    Sessions are ended by an administrator, a pooler or a firewall.
    """

    def test_sessions_ended_at_random_cost_no_work_and_no_second_effect(self) -> None:
        """
        One session of the worker after another, whichever it is, while it works.
        """
        chance = random.Random(SEED)  # noqa: S311 (a fault that can be repeated, no secret)
        jobs = ask_at_once(50)

        with worker(concurrency=2, settings=altered(SHORT_LEASE)) as running:
            for number in range(10):
                until(partial(has_completed, number * 4))
                if sessions := running.sessions():
                    sql("SELECT pg_terminate_backend(%s)", chance.choice(sessions))
            until(is_all_done)
            running.wait_ready()
            is_running = running.is_running()

        assert is_running
        assert violations(jobs, accepted=50) == []


class TestLocksOfOthers:
    """
    Somebody else holds a lock for long.
    """

    def test_row_that_an_operator_holds_is_passed_over(self) -> None:
        """
        The others run, upkeep does not wait either, and the row runs once it is let go.
        """
        held, spent = ask("quick"), ask("aside")
        TransitionMessage.objects.filter(pk=row(spent).pk).update(attempts_started=3, errors_count=2)

        with worker(args=["--poll", "0.3"], settings=altered({UPKEEP_EVERY: 0.3})):
            with operator_holds(TransitionMessage._meta.db_table, row(held).pk):
                others = [ask("quick") for _ in range(3)]
                until(lambda: all(row(job).is_completed for job in [*others, spent]))
                while_held = row(held).attempts_started
            until(lambda: {message.queue_name for message in open_rows()} <= {"side"})

        assert while_held == 0
        assert violations([held, *others]) == []

    def test_account_of_a_crash_waits_for_no_lock(self, gate: Gate) -> None:
        """
        D43: while an operator holds the crashed row, others are accounted for; its own account lands afterwards.
        """
        first, second = (ask("wait", gate=str(gate.path)) for _ in range(2))
        with worker(concurrency=2, points={"after_claim": gate.deed}):
            pids = {gate.arrival().pid for _ in range(2)}
            with operator_holds(TransitionMessage._meta.db_table, row(first).pk):
                for pid in pids:
                    processes.send(pid, signal.SIGKILL)
                until(lambda: row(second).errors_count == 1)
                while_held = row(first).errors_count
            until(lambda: row(first).errors_count == 1)
            gate.let_go(50)
            until(is_all_done)

        assert while_held == 0
        assert violations([first, second], accepted=2) == []
        assert {row(job).last_error_message for job in (first, second)} == {
            "[crashed] its process was ended by SIGKILL"
        }

    def test_object_that_an_operator_holds_keeps_its_attempt_alone(self) -> None:
        """
        The attempt waits at its final write, others run meanwhile, and it commits once the object is let go.
        """
        held = ask("quick")

        with worker(concurrency=2):
            with operator_holds(Job._meta.db_table, held.pk):
                others = [ask("quick") for _ in range(3)]
                until(lambda: all(row(job).is_completed for job in others))
                while_held = row(held).outcome
            until(is_all_done)

        assert while_held == ""
        assert violations([held, *others], accepted=4) == []
        assert row(held).errors_count == 0

    def test_callers_are_not_held_up_by_an_attempt(self, gate: Gate) -> None:
        """
        D41: while an attempt runs its row says since when and where, and an edit of the object needs no lock of its.
        """
        job = ask("wait", gate=str(gate.path))

        with worker(args=["--name", "pod-7"]):
            gate.arrival()
            message = row(job)
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '2s'")
                cursor.execute("UPDATE worker_app_job SET state = state WHERE id = %s", [job.pk])
            gate.let_go()
            until(is_all_done)

        assert message.started_at is not None
        assert message.worker == "pod-7"
        assert violations([job], accepted=1) == []


class TestConnections:
    """
    A worker says how many connections it may open, and opens no more.
    """

    def test_budget_is_said_and_kept(self, ledger: Ledger) -> None:
        """
        One for each child, one for accounts, one for upkeep and one to listen; Worker rows come and go.
        """
        jobs = [ask("quick") for _ in range(20)]
        seen: list[int] = []

        def look() -> bool:
            seen.append(len(running.sessions()))
            return is_all_done()

        with worker(concurrency=3, settings=altered({UPKEEP_EVERY: 0.1})) as running:
            until(look)
            log = running.log

        assert "Up to 6 database connections: 3 for attempts, 1 for accounts, 1 for upkeep, 1 to listen" in log
        assert max(seen) <= 6
        assert "may not fit" not in log
        assert violations(jobs) == []
