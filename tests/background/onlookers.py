"""
Stand beside background work: workers that say they live, sessions that hold rows, and what is told of it all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from django.db import connections

from django_logic.background.explain import Code, Explanation, explain
from django_logic.background.models import TransitionMessage, Worker
from django_logic.clock import FromNow

TABLE = TransitionMessage._meta.db_table


def enter_worker(*queues: str, name: str = "w1", seen: float = 0.0, using: str = "default", **facts: Any) -> Worker:
    """
    Make the row of a worker that was seen so many seconds ago.
    """
    known = {"host": "h1", "pid": 7, "started_at": FromNow(-60), "last_seen_at": FromNow(-seen)}
    worker = Worker(id=uuid4(), name=name, queues=list(queues), **{**known, **facts})
    Worker.objects.using(using).bulk_create([worker])
    return worker


@contextmanager
def session(alias: str = "default") -> Iterator[Any]:
    """
    Give the cursor of a second session with an open transaction, which is rolled back in the end.
    """
    other = connections[alias].copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            yield cursor
            cursor.execute("ROLLBACK")
    finally:
        other.close()


def pid_of(cursor: Any) -> int:
    """
    Return the number of a session.
    """
    cursor.execute("SELECT pg_backend_pid()")
    (pid,) = cursor.fetchone()
    return int(pid)


def lock(cursor: Any, pk: int, how: str = "UPDATE") -> None:
    """
    Lock a row in a session.
    """
    cursor.execute(f"SELECT id FROM {TABLE} WHERE id = %s FOR {how}", [pk])


def told(pk: int | None = None, using: str = "default") -> Explanation:
    """
    Return what is told of one row, of the only one if none is named.
    """
    (found,) = explain(using=using, pks=None if pk is None else [pk])
    return found


def codes(using: str = "default") -> list[Code]:
    """
    List the reasons of all open rows, the oldest first.
    """
    return [found.code for found in explain(using=using)]


def counted(found: list[Explanation]) -> Counter[tuple[str, Code]]:
    """
    Count explanations by queue and reason.
    """
    return Counter((entry.queue, entry.code) for entry in found)
