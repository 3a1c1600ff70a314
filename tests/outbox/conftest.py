"""
Let every test of this folder write events, and keep what relays deliver.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from tests.outbox.seen import table_of_sights
from tests.worker.gates import Gate, gate

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Test publishers beside one database only: they know none.
    """
    if connection.vendor == "postgresql":
        return
    beside = pytest.mark.skip(reason="publishers know no database, and are tested beside PostgreSQL")
    for item in items:
        if item.path.parent == HERE and item.path.name.startswith(("test_publisher_", "test_envelope")):
            item.add_marker(beside)


@pytest.fixture(autouse=True)
def moves_tell(events: None) -> None:
    """
    Let moves write events.
    """


@pytest.fixture
def sights_are_kept(only_postgres: None, transactional_db: None) -> Iterator[None]:
    """
    Keep what relays deliver in a table.
    """
    with table_of_sights():
        yield


@pytest.fixture(name="gate")
def closed_gate(tmp_path: Path) -> Iterator[Gate]:
    """
    Give a gate that stops subscribers who are asked to wait there.
    """
    with gate(tmp_path) as made:
        yield made
