"""
Run a PostgreSQL of a test's own, which the test may crash and start again.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import psycopg
from django.core.management import call_command
from django.db import connections

from example import keeper, services

#: What the tests' own server leaves out for speed, and a crash needs.
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
PATIENCE = 60.0
POLL_SECONDS = 0.02


class Stop(Enum):
    """
    Name the ways to stop PostgreSQL, after those of pg_ctl.
    """

    IMMEDIATE = signal.SIGQUIT
    FAST = signal.SIGINT


class PrivateServer:
    """
    Stop and start one server that `services.postgres` keeps with ``is_revived``.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.facts = dict(facts)
        self.folder = Path(facts["HOST"])

    @contextmanager
    def down(self, stop: Stop = Stop.IMMEDIATE) -> Iterator[None]:
        """
        Stop the server; it is up again, and has recovered, after the block.
        """
        held_down = self.folder / keeper.DOWN_NAME
        held_down.touch()
        postmaster = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, stop.value)
        _wait(lambda: not self.answers())
        try:
            yield
        finally:
            held_down.unlink()
            _wait(self.answers)

    def restart(self, stop: Stop = Stop.IMMEDIATE) -> None:
        """
        Stop the server and start it again at once.
        """
        with self.down(stop):
            pass

    def answers(self) -> bool:
        """
        Tell whether the server takes connections.
        """
        try:
            psycopg.connect(host=str(self.folder), user=self.facts["USER"], dbname="postgres").close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def private_server(options: Mapping[str, str] | None = None, alias: str = "default") -> Iterator[PrivateServer]:
    """
    Move one alias of this process to a durable server of its own, with empty tables, until the block ends.
    """
    with services.postgres({**DURABLE, **(options or {})}, is_revived=True) as facts:
        connection = connections[alias]
        connection.close()
        before = dict(connection.settings_dict)
        connection.settings_dict.update(facts)
        try:
            call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
            yield PrivateServer(facts)
        finally:
            connection.close()
            connection.settings_dict.update(before)


def _wait(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"The server did not come to it within {PATIENCE:g} seconds.")
        time.sleep(POLL_SECONDS)
