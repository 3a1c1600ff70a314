"""
Hold the workers of an engine at their first claim until all of them are there.

A table lock in EXCLUSIVE mode lets everybody read and nobody lock a row: a worker that is up waits with its first
claim. So no start-up is timed, no engine needs to know of it, and none is asked how it says that it is ready.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from harness.contender import WrongResult
from harness.statement import bare_connection

READY_SECONDS = 60.0
GLANCE_SECONDS = 0.01
WAITING = b"SELECT count(*) FROM pg_locks WHERE relation = %s::regclass AND NOT granted"


class Gate:
    """
    A held lock, and the clock that starts when it is released.
    """

    def __init__(self, session: psycopg.Connection, table: str) -> None:
        """
        Close the gate.
        """
        self._session, self._table = session, table
        session.execute(b"BEGIN")
        session.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(sql.Identifier(table)))

    def wait_for(self, claimers: int, fleet_is_alive: object) -> None:
        """
        Wait until that many sessions stand at the gate.

        Raises: WrongResult when they do not come, or when a worker ended.
        """
        deadline = time.monotonic() + READY_SECONDS
        found = 0
        while time.monotonic() < deadline:
            row = self._session.execute(WAITING, [f'"{self._table}"']).fetchone()
            found = int(row[0]) if row else 0
            if found >= claimers:
                return
            if callable(fleet_is_alive):
                fleet_is_alive()
            time.sleep(GLANCE_SECONDS)
        raise WrongResult(
            f"{claimers} sessions were expected at their first claim within {READY_SECONDS:.0f} s, {found} came"
        )

    def open(self) -> float:
        """
        Release the lock; return the time of the release.
        """
        started = time.perf_counter()
        self._session.execute(b"COMMIT")
        return started


@contextmanager
def gate(table: str) -> Iterator[Gate]:
    """
    Close a gate at a table; leaving the block opens it, whatever happened.
    """
    with bare_connection() as session:
        yield Gate(session, table)
