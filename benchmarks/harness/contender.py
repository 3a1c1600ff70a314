"""
What every contender answers to, and the trial they all share.

A trial is: create fresh rows, vacuum, time the moves alone, then check that they happened.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from django.db import connection, models
from django.test.utils import CaptureQueriesContext

START, TARGET = "draft", "approved"


class NotAvailable(Exception):
    """A contender cannot take part; the text says why."""


class WrongResult(Exception):
    """A trial ended without the rows it claims to have written."""


class Contender(Protocol):
    """
    One competitor, driven by the worker.
    """

    key: str
    label: str

    def setup(self) -> None:
        """
        Prepare once, after the tables exist.

        Raises: NotAvailable when the contender cannot take part.
        """

    def run(self, moves: int) -> float:
        """
        Move that many fresh rows, one after another.

        Units: seconds spent in the moves alone.
        Raises: WrongResult when rows are missing afterwards.
        """

    def statements(self) -> int | None:
        """
        Count the statements one move sends, BEGIN and COMMIT included; None when unknown.
        """


@dataclass(slots=True, kw_only=True)
class OrmContender:
    """
    Move model instances that were loaded before the clock started.
    """

    key: str
    label: str
    model: type[models.Model]
    move: Callable[[Any], object]
    records: Sequence[type[models.Model]] = field(default=())

    def setup(self) -> None:
        """
        Nothing to prepare.
        """

    def run(self, moves: int) -> float:
        """
        Time the moves of freshly loaded instances.
        """
        orders = stage(self.model, moves)
        before = [record._base_manager.count() for record in self.records]
        settle_tables()
        move = self.move
        started = time.perf_counter()
        for order in orders:
            move(order)
        seconds = time.perf_counter() - started
        check_moved(self.model, [order.pk for order in orders])
        self._check_records(before, moves)
        return seconds

    def statements(self) -> int | None:
        """
        Count the statements of one extra move, after another has filled the caches.
        """
        first, order = stage(self.model, 2)
        self.move(first)
        with CaptureQueriesContext(connection) as queries:
            self.move(order)
        return len(queries)

    def _check_records(self, before: Sequence[int], moves: int) -> None:
        for record, count in zip(self.records, before, strict=True):
            written = record._base_manager.count() - count
            if written != moves:
                raise WrongResult(f"{self.key}: expected {moves} new rows of {record.__name__}, found {written}")


def stage(model: type[models.Model], count: int) -> list[Any]:
    """
    Create rows in the starting state and load them as a caller would.
    """
    manager = model._base_manager
    created = manager.bulk_create([model(customer=f"customer {number}") for number in range(count)])
    return list(manager.filter(pk__in=[order.pk for order in created]).order_by("pk"))


def settle_tables() -> None:
    """
    Leave every trial the same starting point: no dead rows, fresh statistics, no pending checkpoint.
    """
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("CHECKPOINT")
    gc.collect()


def check_moved(model: type[models.Model], keys: Sequence[object]) -> None:
    """
    Refuse a figure whose rows did not all reach the target.
    """
    moved = model._base_manager.filter(pk__in=keys, state=TARGET).count()
    if moved != len(keys):
        raise WrongResult(f"{model.__name__}: expected {len(keys)} rows in {TARGET!r}, found {moved}")
