"""
Prove with real workers what a sceptical reader of the engine doubted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_logic.background.models import TransitionMessage
from django_logic.background.wakeup import notify
from tests.worker import processes
from tests.worker.altered import altered
from tests.worker.asking import ask, is_all_done
from tests.worker.gates import Gate
from tests.worker.harness import open_rows, row, sql, until, worker
from tests.worker_app.ledger import Ledger
from tests.worker_app.models import Job
from tests.worker_app.process import QUEUE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]


def committed() -> int:
    """
    Count the transactions this database has ended.
    """
    sql("SELECT pg_stat_force_next_flush()") if connection.pg_version >= 150000 else None
    ((count,),) = sql("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
    return int(count)


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
        for _ in range(2000):
            notify("default", QUEUE)
        until(lambda: sql("SELECT 1"))
        before = committed()
        gate.let_go(5)
        until(is_all_done)
        time.sleep(4)
        after = committed()
        print("transactions after the end of the work:", after - before)

    assert after - before < 200


def test_one_row_costs_a_large_idle_worker_no_more_than_a_small_one(ledger: Ledger) -> None:
    """
    One notification wakes one child.
    """
    costs = {}
    for concurrency in (1, 8):
        with worker(concurrency=concurrency, args=["--poll", "60"]) as running:
            running.wait_ready()
            time.sleep(1.5)
            before = committed()
            for _ in range(20):
                ask("quick")
                until(is_all_done)
            time.sleep(1.5)
            costs[concurrency] = (committed() - before) / 20
    print(costs)

    assert costs[8] < costs[1] * 2


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
