"""
Prove that a mistake on the command line of `dl_worker` is answered with one line and status 1.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import execute_from_command_line
from django.db import connections

from tests.worker.asking import ask, is_all_done
from tests.worker.harness import row, until, worker
from tests.worker_app.process import QUEUE, SIDE_QUEUE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres", "ledger")]


class WorkerBegan(Exception):
    """
    Say that a command line was not refused.
    """


def answer(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[Any, list[str]]:
    """
    Give a command line to `dl_worker` that it refuses; return the exit status and the lines of standard error.
    """

    def refuse() -> int:
        raise WorkerBegan

    with pytest.MonkeyPatch.context() as patch:
        # No worker may begin in this process, whose connections and signals are those of the test run.
        patch.setattr(os, "fork", refuse)
        with pytest.raises(SystemExit) as end:
            execute_from_command_line([sys.argv[0], "dl_worker", *args])
    captured = capsys.readouterr()
    assert captured.out == ""
    return end.value.code, captured.err.splitlines()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--queues", "work", "--database", "defualt"], ["'defualt'", "'default'"]),
        (["--queues", "work", "--listen-database", "direct"], ["--listen-database", "'direct'"]),
        (["--queues", " , "], ["--queues", "names no queue"]),
        (["--queues", ""], ["--queues", "names no queue"]),
        ([], ["--queues"]),
        (["--queues", "work", "--concurrency", "0"], ["--concurrency", "from 1", "0"]),
        (["--queues", "work", "--concurrency", "two"], ["--concurrency", "two"]),
        (["--queues", "work", "--max-attempts-per-child", "-1"], ["--max-attempts-per-child", "from 1"]),
        (["--queues", "work", "--max-growth", "-1"], ["--max-growth", "from 0"]),
        (["--queues", "work", "--poll", "0"], ["--poll", "from 0.01"]),
        (["--queues", "work", "--poll", "nan"], ["--poll", "nan"]),
        (["--queues", "work", "--grace", "-1"], ["--grace", "-1"]),
        (["--queues", "work", "--grace", "inf"], ["--grace", "inf"]),
        (["--queues", "work", "--health-file", "/nowhere/at/all"], ["--health-file", "/nowhere/at/all"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_option_that_can_not_work_is_refused(args: list[str], words: list[str], capsys: Any) -> None:
    """
    Status 1, what was wrong and what to write instead, no traceback.
    """
    status, lines = answer(capsys, *args)

    assert status == 1
    assert all(word in lines[-1] for word in words), lines
    assert "Traceback" not in "".join(lines)


def test_worker_is_refused_where_calls_do_the_work(capsys: Any, settings: Any) -> None:
    """
    In sync mode no row waits for a worker, so somebody has made a mistake.
    """
    settings.DJANGO_LOGIC = {**getattr(django_settings, "DJANGO_LOGIC", {}), "BACKGROUND_EXECUTION": "sync"}

    status, lines = answer(capsys, "--queues", "work")

    assert (status, len(lines)) == (1, 1)
    assert "'sync'" in lines[0]


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
@pytest.mark.parametrize(
    ("facts", "word"),
    [({"HOST": "/nowhere"}, "can't be reached"), ({"NAME": "postgres"}, "Run manage.py migrate")],
    ids=["no server", "no table"],
)
def test_worker_is_refused_where_its_database_is_not_ready(facts: dict[str, str], word: str, capsys: Any) -> None:
    """
    A server that does not answer, or a database that was never migrated, is said in one line.
    """
    connection = connections["other"]
    before = dict(connection.settings_dict)
    connection.close()
    connection.settings_dict.update(facts)
    try:
        status, lines = answer(capsys, "--queues", "work", "--database", "other")
    finally:
        connection.close()
        connection.settings_dict.update(before)

    assert status == 1
    assert word in "".join(lines)
    assert "Traceback" not in "".join(lines)


def test_queues_may_be_written_with_blanks_and_one_that_nobody_uses_is_reported() -> None:
    """
    ``"a, b"`` names two queues; an unknown one gets a warning with the nearest name, and the worker works.
    """
    jobs = [ask("quick"), ask("aside")]

    with worker(f" {QUEUE} , {SIDE_QUEUE},,wrok , {QUEUE}", args=["--drain"]) as running:
        status = running.wait()
        log = running.log

    until(is_all_done)
    assert status == 0
    assert [row(job).outcome for job in jobs] == ["succeeded", "succeeded"]
    assert f"queues {QUEUE}, {SIDE_QUEUE}, wrok" in log
    assert log.count("No bound transition uses the queue") == 1
    assert "'wrok'" in log
    assert f"'{QUEUE}'" in log
