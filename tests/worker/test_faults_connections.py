"""
Prove that children share no connection with their parent, whatever the driver, the pool and the encryption are.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import django
import psycopg
import pytest
from django.db import connection

from example.services import ServiceMissing
from tests.worker.altered import UPKEEP_EVERY, altered
from tests.worker.asking import ask, ask_at_once, is_all_done
from tests.worker.conftest import skip_or_fail
from tests.worker.encryption import encryption
from tests.worker.harness import row, sql, until, worker
from tests.worker.invariants import violations
from tests.worker_app.models import Effect

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres", "ledger")]

HAS_POOL = django.VERSION >= (5, 1) and find_spec("psycopg_pool") is not None
#: Seconds between polls, so that what is quick was woken.
SELDOM = ["--poll", "60"]


def server_socket() -> Path:
    """
    Return the unix socket of the test server.
    """
    facts = connection.settings_dict
    return Path(facts["HOST"]) / f".s.PGSQL.{facts['PORT'] or 5432}"


def test_children_share_no_connection_with_their_parent() -> None:
    """
    B11: four children that are replaced all the time, TLS, and Django's pool where there is one; a shared socket would
    break its encryption. D47: each child has a session of its own.
    """
    jobs = ask_at_once(60)

    try:
        with encryption(server_socket()) as tls:
            options = {"sslmode": "require", "gssencmode": "disable", **({"pool": True} if HAS_POOL else {})}
            with worker(
                concurrency=4,
                args=["--max-attempts-per-child", "10"],
                databases={"default": {"HOST": "127.0.0.1", "PORT": str(tls.port), "OPTIONS": options}},
                settings=altered({UPKEEP_EVERY: 0.5}),
            ) as running:
                until(is_all_done)
                running.wait_ready()
                running.term()
                status = running.wait()
                log = running.log
    except ServiceMissing as missing:
        skip_or_fail(missing)

    pairs = {(row(job).backend_pid, Effect.objects.get(job_id=job.pk).pid) for job in jobs}
    assert status == 0
    assert violations(jobs, accepted=60) == []
    assert tls.broken == []
    assert tls.count >= 10
    assert len({session for session, _ in pairs}) == len({process for _, process in pairs}) == len(pairs)
    assert [line for line in log.splitlines() if " INFO " not in line] == []


@pytest.mark.skipif(find_spec("psycopg2") is None, reason="psycopg 2 is not installed")
def test_worker_on_the_older_driver_is_woken_and_listens_again(tmp_path: Path) -> None:
    """
    D46: with psycopg 2 an idle worker runs a row at once, also after its listening session was ended.
    """
    (tmp_path / "psycopg").mkdir()
    (tmp_path / "psycopg" / "__init__.py").write_text("raise ImportError('hidden by a test')\n")
    older = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}

    with worker(args=SELDOM, env=older) as running:
        running.wait_ready()
        first = ask("quick")
        until(is_all_done, 10)
        listening = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND query LIKE 'LISTEN%%'"
        ((session,),) = until(lambda: sql(listening, running.name))
        sql("SELECT pg_terminate_backend(%s)", session)
        until(lambda: [found for (found,) in sql(listening, running.name) if found != session])
        second = ask("follow")
        until(is_all_done, 10)

    assert violations([first, second], accepted=2) == []


def test_server_that_has_too_few_connections_left_is_named_at_the_start() -> None:
    """
    The warning counts what is open already, and says what can be done.
    """
    room = "current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
    others = "(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())"
    ((left,),) = sql(f"SELECT {room} - {others}")
    facts = connection.get_connection_params()
    facts = {name: facts[name] for name in ("host", "port", "user", "dbname") if facts.get(name)}
    taken = [psycopg.connect(**facts) for _ in range(left - 3)]

    try:
        with worker() as running:
            until(lambda: "may not fit" in running.log)
            log = running.log
    finally:
        for other in taken:
            other.close()

    assert "Lower --concurrency" in log


def test_worker_whose_statements_are_prepared_does_all_kinds_of_work() -> None:
    """
    The options that docs/how-to/size-workers.md names: server-side binding, statements kept by the server.
    """
    jobs = [ask(action) for action in ("quick", "quick", "quick", "follow", "crash", "fail", "act")]

    with worker(
        concurrency=2,
        args=SELDOM,
        databases={"default": {"OPTIONS": {"server_side_binding": True, "prepare_threshold": 0}}},
        settings=altered({UPKEEP_EVERY: 0.5}),
    ) as running:
        until(is_all_done)
        late = ask("quick")
        until(is_all_done, 10.0)
        log = running.log

    assert violations([*jobs, late]) == []
    assert [row(job).outcome for job in jobs] == ["succeeded"] * 7
    assert "can't" not in log
