"""
Prove that a row is found at once where notifications arrive, and by polling where they don't.

Workers here look for themselves once a minute unless said otherwise, so that what is quick was woken.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_logic.background.models import TransitionMessage
from django_logic.background.models import Worker as WorkerRow
from django_logic.wakeup import WORK
from tests.worker import processes
from tests.worker.altered import ANSWER_WITHIN, BEAT_EVERY, LONGEST_PAUSE, PROVE_EVERY, UPKEEP_EVERY, altered
from tests.worker.asking import ask, ask_at_once, is_all_done
from tests.worker.gates import Gate
from tests.worker.harness import Worker, database_facts, row, sql, until, worker
from tests.worker.invariants import violations
from tests.worker.pooler import Pooler

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres", "ledger")]

SELDOM = ["--poll", "60"]
ROWS = TransitionMessage._meta.db_table
#: Seconds in which a woken worker has long begun, and before which one that polls would not.
SOON = 10.0


def listener_of(running: Worker) -> int | None:
    """
    Return the session that listens for a worker.
    """
    found = sql(
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s AND state = 'idle' AND query LIKE 'LISTEN%%'",
        f"{running.name}%",
    )
    return found[0][0] if found else None


def is_listening() -> bool | None:
    """
    Return what the only worker has written about its listening.
    """
    return WorkerRow.objects.values_list("is_listening", flat=True).first()


@contextmanager
def idle_worker(**options: object) -> Iterator[Worker]:
    """
    Run a worker that polls once a minute, listens, and waits.
    """
    with worker(args=SELDOM, **options) as running:  # type: ignore[arg-type]
        until(lambda: listener_of(running))
        running.wait_ready()
        yield running


def test_rows_of_one_notification_wake_as_many_children_as_there_are_rows(gate: Gate) -> None:
    """
    Four calls in one transaction send one word, and four children run at the same time.
    """
    with idle_worker(concurrency=4):
        jobs = ask_at_once(4, "wait", gate=str(gate.path))
        pids = {gate.arrival(SOON).pid for _ in jobs}
        gate.let_go(4)
        until(is_all_done)

    assert len(pids) == 4
    assert violations(jobs, accepted=4) == []


def test_row_that_comes_while_nobody_listens_is_found_as_soon_as_somebody_does() -> None:
    """
    B10: the listening session is ended, a row comes, and only then is there a new one: LISTEN first, then look.
    """
    with idle_worker() as running:
        clerk = clerk_of(running)
        processes.send(clerk, signal.SIGSTOP)
        sql("SELECT pg_terminate_backend(%s)", listener_of(running))
        until(lambda: listener_of(running) is None)
        job = ask("quick")
        processes.send(clerk, signal.SIGCONT)

        until(is_all_done, SOON)
        until(lambda: listener_of(running))
        again = ask("quick")
        until(is_all_done, SOON)

    assert violations([job, again], accepted=2) == []


def test_word_that_is_lost_costs_one_poll_at_most() -> None:
    """
    C26: a row that nobody is told of runs as soon as a child looks.
    """
    with worker(args=["--poll", "0.5"]) as running:
        running.wait_ready()
        clerk = clerk_of(running)
        processes.send(clerk, signal.SIGSTOP)
        job = ask("quick")
        until(is_all_done, SOON)

    assert violations([job], accepted=1) == []


def test_row_that_comes_due_while_all_wait_is_run_when_it_is() -> None:
    """
    A delay and a retry pause end between two polls, and nobody sends a word then.
    """
    with idle_worker():
        jobs = [ask("quick", delay=0.5), ask("snooze", seconds=0.5)]
        until(is_all_done, SOON)

    assert violations(jobs, accepted=2) == []


def test_row_that_comes_due_between_two_looks_is_not_left_to_the_next_poll(gate: Gate) -> None:
    """
    It is not due yet when a child looks for rows, and due already when that child asks when the next one will be.
    """
    settings = altered(at_boot=["look_late"], WORKER_GATE=str(gate.path))
    with worker(args=SELDOM, settings=settings) as running:
        gate.arrival()
        until(lambda: listener_of(running))
        gate.let_go()
        job = ask("quick", delay=0.5)
        gate.arrival()
        until(lambda: sql(f"SELECT 1 FROM {ROWS} WHERE run_at < STATEMENT_TIMESTAMP()"))
        gate.let_go(20)
        until(is_all_done, SOON)

    assert violations([job], accepted=1) == []


def test_worker_that_can_not_listen_polls_and_does_not_say_so_at_every_poll(tmp_path: Path) -> None:
    """
    D49: with LISTEN going where no server is, rows are done by polling, and warnings become rare.
    """
    nowhere = {"other": {"HOST": str(tmp_path)}}
    with worker(
        args=["--poll", "0.05", "--listen-database", "other"],
        databases=nowhere,
        settings=altered({LONGEST_PAUSE: 3600.0}),
    ) as running:
        jobs = []
        for _ in range(5):
            jobs.append(ask("quick"))
            until(is_all_done, SOON)
        until(lambda: is_listening() is False)
        log = running.log

    assert violations(jobs, accepted=5) == []
    assert 1 <= log.count("LISTEN was lost") <= 4


class TestBehindPgbouncer:
    """
    In transaction mode the words get lost, and nothing else does.
    """

    #: The proof of life comes every 10 seconds and is waited for 5, and the row is written as often.
    OFTEN = {PROVE_EVERY: 0.3, ANSWER_WITHIN: 0.2, BEAT_EVERY: 0.5}

    @pytest.fixture(autouse=True)
    def _commits_wait(self, pooler: Pooler) -> Iterator[None]:
        """
        Let commits wait for the disk, which the server of the tests does not do by itself.
        """
        name = connection.ops.quote_name(connection.settings_dict["NAME"])
        sql(f"ALTER DATABASE {name} SET synchronous_commit TO on")
        yield
        sql(f"ALTER DATABASE {name} RESET synchronous_commit")

    def test_work_is_done_by_polling_and_the_loss_is_said_once(self, pooler: Pooler) -> None:
        """
        Five children share what sessions there are; the settings of Django are what pgbouncer's users need anyway, and
        what a claim sets for its own commit reaches nobody who gets the session next.
        """
        jobs = [ask(action) for action in ("quick", "quick", "follow", "crash", "fail", "act")]

        with worker(
            concurrency=5,
            args=["--poll", "0.2"],
            databases={"default": pooler.facts},
            settings=altered({**self.OFTEN, UPKEEP_EVERY: 0.5}),
        ) as running:
            until(is_all_done)
            until(lambda: is_listening() is False)
            hear_proofs(3)
            late = ask("quick")
            until(is_all_done)
            kept = {through(pooler, "SHOW synchronous_commit") for _ in range(20)}
            log = running.log

        assert violations([*jobs, late]) == []
        assert kept == {"on"}
        assert [row(job).outcome for job in jobs] == ["succeeded"] * 6
        assert log.count("Notifications do not arrive") == 1
        assert "upkeep" not in log.replace("1 for upkeep", "")

    def test_direct_alias_for_listening_wakes_at_once(self, pooler: Pooler) -> None:
        """
        With --listen-database words arrive past the pooler.
        """
        databases = {"default": pooler.facts, "other": database_facts("direct", {})["default"]}

        with worker(
            args=[*SELDOM, "--listen-database", "other"], databases=databases, settings=altered(self.OFTEN)
        ) as running:
            until(lambda: is_listening())
            running.wait_ready()
            job = ask("quick")
            until(is_all_done, SOON)
            hear_proofs(1)
            log = running.log

        assert violations([job], accepted=1) == []
        assert "Notifications do not arrive" not in log


def clerk_of(running: Worker) -> int:
    """
    Return the child that listens: it is forked before all others.
    """
    return running.children()[0]


def hear_proofs(count: int) -> None:
    """
    Listen beside the worker until it has tried so often to hear itself.
    """
    with direct_session() as session:
        session.execute(f"LISTEN {WORK.name}")
        proofs = [word for word in session.notifies(timeout=SOON, stop_after=count) if "probe" in word.payload]
    assert len(proofs) >= count


@contextmanager
def direct_session() -> Iterator[psycopg.Connection[Any]]:
    """
    Open a session past Django, which keeps what is sent to it.
    """
    facts = connection.get_connection_params()
    wanted = {name: facts[name] for name in ("host", "port", "user", "dbname") if facts.get(name)}
    with psycopg.connect(**wanted, autocommit=True) as session:
        yield session


def through(pooler: Pooler, statement: str) -> str:
    """
    Ask one question through the pooler.
    """
    address = {"host": pooler.facts["HOST"], "port": pooler.facts["PORT"], "dbname": pooler.facts["NAME"]}
    with psycopg.connect(**address, user=pooler.facts["USER"], autocommit=True, prepare_threshold=None) as client:
        ((answer,),) = client.execute(statement).fetchall()
    return str(answer)
