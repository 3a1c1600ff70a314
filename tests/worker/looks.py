"""
Look at what worker processes have left in the database, and wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from django.db import connections, models

from django_logic.background.models import TransitionMessage
from django_logic.clock import FromNow
from tests.worker.gates import PATIENCE

POLL_SECONDS = 0.02

Found = TypeVar("Found")


def until(
    condition: Callable[[], Found], seconds: float = PATIENCE, *, despite: tuple[type[Exception], ...] = ()
) -> Found:
    """
    Ask again until the answer is true, and return it; errors named in `despite` count as a no.

    Raises: AssertionError when it does not become true in time.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            answer = condition()
        except despite as error:
            _drop_broken_connections()
            answer, last = None, f" The last try raised {error!r}."
        else:
            last = f" The last answer was {answer!r}."
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"It did not come true within {seconds:g} seconds.{last}")
        time.sleep(POLL_SECONDS)


def sql(statement: str, *parameters: Any, alias: str = "default") -> list[tuple[Any, ...]]:
    """
    Run one statement on a connection of its own, which is closed again.
    """
    admin = connections[alias].copy()
    try:
        with admin.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall()) if cursor.description else []
    finally:
        admin.close()


def row(instance: models.Model) -> TransitionMessage:
    """
    Return the newest row of an object that stands for a transition.

    Raises: TransitionMessage.DoesNotExist.
    """
    rows = TransitionMessage.objects.using(instance._state.db).for_instance(instance).transitions()
    return rows.order_by("-id")[:1].get()


def open_rows(alias: str = "default") -> list[TransitionMessage]:
    """
    List the rows that have not ended, durable ones included.
    """
    return list(TransitionMessage.objects.using(alias).open().order_by("id"))


def is_held(message: TransitionMessage) -> bool:
    """
    Tell whether some session holds the lock of a row.
    """
    table = TransitionMessage._meta.db_table
    return not sql(f"SELECT id FROM {table} WHERE id = %s FOR UPDATE SKIP LOCKED", message.pk)


def skip_pause(instance: models.Model) -> None:
    """
    Make every open row of an object due, as the passing of time would.
    """
    rows = TransitionMessage.objects.using(instance._state.db).for_instance(instance).open()
    rows.update(run_at=FromNow())


def _drop_broken_connections() -> None:
    for alias in connections:
        connections[alias].close()
