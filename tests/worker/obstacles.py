"""
Stand in the way of attempts, inside the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connection

#: The advisory lock of PostgreSQL that hooks wait for.
KEY = 4711


@contextmanager
def closed_lock() -> Iterator[Callable[[], None]]:
    """
    Hold the advisory lock in a session of its own; give the function that lets it go before the block ends.
    """
    session = connection.copy()
    try:
        with session.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [KEY])
        yield session.close
    finally:
        session.close()


@contextmanager
def operator_holds(table: str, pk: int) -> Iterator[None]:
    """
    Hold the lock of a row in a session of its own, as an operator does who forgot to commit.
    """
    session = connection.copy()
    try:
        session.set_autocommit(False)
        with session.cursor() as cursor:
            cursor.execute(f"SELECT id FROM {table} WHERE id = %s FOR UPDATE", [pk])
        yield
    finally:
        session.close()
