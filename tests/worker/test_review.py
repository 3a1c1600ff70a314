"""
Prove with real workers what a sceptical reader of the engine doubted.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.cache import cache
from django.db import connections, transaction

from django_logic import Process
from django_logic.wakeup import WORK, notify
from tests.worker import processes
from tests.worker.altered import SHORT_LEASE, altered
from tests.worker.asking import ask, is_all_done
from tests.worker.fault_process import jobs_have
from tests.worker.gates import Gate
from tests.worker.harness import open_rows, row, sql, until, worker
from tests.worker_app import hooks
from tests.worker_app.ledger import Ledger, noted
from tests.worker_app.process import IN_TEN_MINUTES, QUEUE, work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]


@noted
def opening_a_block(instance: Any, **keywords: Any) -> None:
    """
    Enter a transaction on another database and never leave it, as an abandoned generator does.
    """
    transaction.atomic(using="other").__enter__()


@noted
def reading_another_database(instance: Any, **keywords: Any) -> None:
    """
    Read something on the other database.
    """
    with connections["other"].cursor() as cursor:
        cursor.execute("SELECT 1")


@noted
def using_the_cache(instance: Any, **keywords: Any) -> None:
    """
    Use the cache, as most hooks do sooner or later.
    """
    cache.set("seen", instance.pk)


class ReviewProcess(Process):
    """
    Wait with a long pause after a failure, leave a block open, use the cache.
    """

    process_name = "process"
    transitions = [
        work("quick"),
        work("wait_and_pause", hooks.waiting, retry=IN_TEN_MINUTES),
        work("open_a_block", opening_a_block),
        work("read_elsewhere", reading_another_database, max_errors=1),
        work("use_cache", using_the_cache),
    ]


#: When the session of a child that waits has become idle, by the statement every wait begins with: a claim in vain.
AT_REST = (
    "SELECT state_change FROM pg_stat_activity"
    " WHERE application_name LIKE %s AND state = 'idle' AND query LIKE '%%candidate.run_at >= lane.floor%%'"
)


def is_at_rest(running: Any) -> bool:
    """
    Tell whether the only child of a worker asks nothing for half a second.
    """
    before = sql(AT_REST, f"{running.name}%")
    time.sleep(0.5)
    return bool(before) and sql(AT_REST, f"{running.name}%") == before


def test_children_and_clerk_that_die_at_once_do_not_take_the_parent_along(gate: Gate, ledger: Ledger) -> None:
    """
    The parent outlives the end of its clerk and of a running child in one moment.
    """
    ask("wait", gate=str(gate.path))

    with worker() as running:
        running.wait_ready()
        gate.arrival()
        running.signal(signal.SIGSTOP)
        for pid in running.children():
            processes.send(pid, signal.SIGKILL)
        running.signal(signal.SIGCONT)
        gate.let_go(5)
        until(is_all_done)

        assert running.is_running()


def test_notifications_that_came_while_children_worked_are_no_work_afterwards(gate: Gate, ledger: Ledger) -> None:
    """
    A worker that had no idle child for a while does not make up for every notification it got meanwhile.
    """
    ask("wait", gate=str(gate.path))

    with worker(args=["--poll", "60"]) as running:
        running.wait_ready()
        gate.arrival()
        for _ in range(5000):
            notify(WORK, "default", QUEUE)
        gate.let_go(5)
        until(is_all_done)
        until(lambda: is_at_rest(running), 4)


@pytest.mark.parametrize("flag", ["--code-version", "--name"])
def test_long_name_does_not_keep_a_worker_from_claiming(flag: str, ledger: Ledger) -> None:
    """
    A version like an image with its digest, or a long name, is noted as far as it fits.
    """
    ask("quick")
    long = "registry.example.org/team/project/shop-worker@sha256:" + "0123456789abcdef" * 16

    with worker(args=[flag, long]):
        until(is_all_done, 8)


def test_health_file_that_can_not_be_written_is_one_clear_line(tmp_path: Path, ledger: Ledger) -> None:
    """
    A user's mistake gets no traceback.
    """
    with worker(args=["--health-file", str(tmp_path / "missing" / "health")]) as running:
        running.wait()

        assert "Traceback" not in running.log


LATE = (
    "SELECT id FROM django_logic_background_transitionmessage"
    " WHERE run_at < now() - interval '0.5 second' AND NOT is_completed AND claim_token IS NOT NULL"
)


def test_long_attempt_that_is_killed_beside_busy_siblings_keeps_its_pause(gate: Gate, ledger: Ledger) -> None:
    """
    An attempt that has outlived its lease and is killed is entered as crashed and waits for its retry pause.
    """
    settings = altered(SHORT_LEASE, process=ReviewProcess)
    with jobs_have(ReviewProcess), worker(concurrency=2, settings=settings) as running:
        running.wait_ready()
        clerk = running.children()[0]
        job = ask("wait_and_pause", gate=str(gate.path))
        pid = gate.arrival().pid
        until(lambda: sql(LATE))
        # A clerk that is busy for a moment, as with a lost LISTEN; without it one row in six is told so.
        processes.send(clerk, signal.SIGSTOP)
        processes.send(pid, signal.SIGKILL)
        ask("quick")
        until(lambda: len(open_rows()) == 1)
        processes.send(clerk, signal.SIGCONT)
        until(lambda: row(job).errors_count)
        gate.let_go(5)
        told = row(job)

    assert (told.attempts_started, told.last_error_message.partition(" ")[0]) == (1, "[crashed]")


def test_hook_that_leaves_a_block_open_does_not_spoil_what_comes_after(gate: Gate, ledger: Ledger) -> None:
    """
    A transaction that a hook left open on another database is over when the next attempt begins.
    """
    with jobs_have(ReviewProcess), worker(settings=altered(process=ReviewProcess)):
        ask("open_a_block")
        until(is_all_done)
        job = ask("read_elsewhere")
        until(is_all_done)

    assert row(job).outcome == "succeeded", row(job).last_error_message


def test_attempts_share_their_connection_to_the_cache(redis_url: str, ledger: Ledger) -> None:
    """
    A child keeps its connection to the cache from attempt to attempt, as a web process does from request to request.
    """
    caches = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_url}}
    client = redis.Redis.from_url(redis_url)
    with jobs_have(ReviewProcess), worker(settings=altered(process=ReviewProcess, CACHES=caches)) as running:
        running.wait_ready()
        before = client.info("stats")["total_connections_received"]
        for _ in range(50):
            ask("use_cache")
        until(is_all_done)
        made = client.info("stats")["total_connections_received"] - before
    client.close()

    assert made <= 3
