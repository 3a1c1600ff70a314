"""
Offer what tests of worker processes share.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from example.services import ServiceMissing
from tests import servers
from tests.worker.clock import wrong_clock
from tests.worker.gates import Gate, gate
from tests.worker.harness import database_facts
from tests.worker.pooler import Pooler, pgbouncer
from tests.worker.private import PrivateServer, private_server
from tests.worker_app import ledger as ledgers
from tests.worker_app.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """
    Give an empty ledger, which this process and every worker it starts write in.
    """
    path = tmp_path / "ledger"
    monkeypatch.setenv(ledgers.VARIABLE, str(path))
    return Ledger(path)


@pytest.fixture(name="gate")
def closed_gate(tmp_path: Path) -> Iterator[Gate]:
    """
    Give a gate that stops who comes by.
    """
    with gate(tmp_path) as made:
        yield made


@pytest.fixture
def pooler(only_postgres: None, transactional_db: None) -> Iterator[Pooler]:
    """
    Give a pgbouncer in transaction mode in front of the test database.
    """
    try:
        with pgbouncer(database_facts("pooled", {})["default"]) as running:
            yield running
    except ServiceMissing as missing:
        skip_or_fail(missing)


@pytest.fixture
def private(only_postgres: None, transactional_db: None) -> Iterator[PrivateServer]:
    """
    Move the alias `default` to a durable server that the test may crash.
    """
    with private_server() as server:
        yield server


@pytest.fixture
def clock_ahead() -> dict[str, str]:
    """
    Give the environment of a process whose clock is ten minutes ahead.
    """
    try:
        return wrong_clock("+10m")
    except ServiceMissing as missing:
        skip_or_fail(missing)


def skip_or_fail(missing: ServiceMissing) -> NoReturn:
    """
    Skip a test whose service is not installed, or fail it where services are required.
    """
    if servers.are_required():
        pytest.fail(str(missing))
    pytest.skip(str(missing))
