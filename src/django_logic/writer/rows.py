"""
Rows that go with a move, and what both kinds of moves need, through the ORM.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import models
from django.db.models import Exists

from django_logic.moves import ChangeLost, Move
from django_logic.rows import Change, Row, settled

__all__ = ["change_row", "expectation", "insert_rows", "table", "time_values"]


def table(model: type[models.Model], alias: str) -> models.QuerySet[Any]:
    """
    Return all rows of a model, whatever its managers leave out.
    """
    return models.QuerySet(model=model, using=alias)


def time_values(move: Move) -> dict[str, Any]:
    """
    Return the ``auto_now`` columns that move with the state; sets them on the instance, as save() would.
    """
    instance = move.instance if move.instance is not None else move.column.model()
    return {entry.attname: entry.pre_save(instance, add=False) for entry in move.column.auto_now}


def insert_rows(rows: Iterable[Row], alias: str, sequence: int | None = None) -> None:
    """
    Insert rows through the ORM.
    """
    for row in rows:
        values = {name: settled(value, sequence) for name, value in row.everything.items()}
        table(row.model, alias).bulk_create([row.model(**values)])


def change_row(change: Change, alias: str) -> None:
    """
    Change a row through the ORM, if it still is as expected.

    Raises: ChangeLost when it is not.
    """
    rows = table(change.model, alias).filter(pk=change.pk, **change.expected)
    if change.unless is not None:
        rows = rows.filter(~Exists(table(change.unless.model, alias).filter(**{change.unless.attribute: change.pk})))
    if not rows.update(**change.values):
        raise ChangeLost


def expectation(move: Move) -> dict[str, Any]:
    """
    Return the filter that holds while a row is where the move expects it.
    """
    name = move.column.field.attname
    return {f"{name}__isnull": True} if move.expected is None else {name: move.expected}
