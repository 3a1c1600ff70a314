"""
How a statement says a value: as a parameter, written out, or computed by the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from django.db import connections, models

from django_logic.clock import FromNow
from django_logic.rows import SEQUENCE, Row, places_of_sequence

__all__ = [
    "BETWEEN",
    "DIFFERS",
    "NUMBERED",
    "fields_by_attribute",
    "left_out",
    "literal",
    "prepared",
    "spelled",
    "spelled_row",
]

#: Marks a JSON object that gets the move's sequence under the names behind it.
NUMBERED = "numbered:"
#: Marks what is not the same in all of many rows.
DIFFERS = "differs"
#: Parts these names; no name in JSON that a database stores holds it.
BETWEEN = "\0"


@cache
def fields_by_attribute(model: type[models.Model]) -> dict[str, Any]:
    """
    Return a model's columns by the attribute that holds them.
    """
    return {entry.attname: entry for entry in model._meta.concrete_fields}


def prepared(connection: Any, options: Any, prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return values as the driver takes them, under the names the statement uses.
    """
    by_attribute = fields_by_attribute(options.model)
    return {f"{prefix}{name}": by_attribute[name].get_db_prep_save(value, connection) for name, value in values.items()}


def spelled(
    connection: Any, model: type[models.Model], prefix: str, values: Mapping[str, Any], parameters: dict[str, Any]
) -> tuple[tuple[str, str], ...]:
    """
    Return how a statement says each value, and add those it is given to its parameters.

    What is the same for most rows is written out: a driver that binds on the client parses a long statement with many
    parameters anew each time, and cannot tell the type of a missing value.
    """
    by_attribute, shape = fields_by_attribute(model), []
    for name, value in values.items():
        if value is SEQUENCE:
            kind = "sequence"
        elif places := places_of_sequence(value):
            known = {place: inner for place, inner in value.items() if inner is not SEQUENCE}
            kind, ready = f"{NUMBERED}{BETWEEN.join(places)}", by_attribute[name].get_db_prep_save(known, connection)
        elif isinstance(value, FromNow):
            kind, ready = ("moment", value.seconds) if value.seconds else ("now", None)
        else:
            ready = by_attribute[name].get_db_prep_save(value, connection)
            kind = literal(ready) or "given"
        if kind in ("given", "moment") or kind.startswith(NUMBERED):
            parameters[f"{prefix}{name}"] = ready
        shape.append((name, kind))
    return tuple(shape)


def spelled_row(connection: Any, row: Row, prefix: str, parameters: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """
    Return how a statement says the values of a new row; those that are left out are the model's defaults.
    """
    shape = spelled(connection, row.model, prefix, row.values, parameters)
    constant, others = left_out(connection.alias, row.model, tuple(row.values))
    if not others:
        return shape + constant
    return (
        shape
        + constant
        + spelled(connection, row.model, prefix, {name: default() for name, default in others}, parameters)
    )


@lru_cache(maxsize=1024)
def left_out(
    alias: str, model: type[models.Model], names: tuple[str, ...]
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, Any], ...]]:
    """
    Return the columns that neither a row nor the database has a value for: those always written alike, the others.
    """
    constant, others = [], []
    for name, entry in fields_by_attribute(model).items():
        if name in names or entry.db_returning or getattr(entry, "generated", False):
            continue
        text = (
            None
            if callable(entry.default)
            else literal(entry.get_db_prep_save(entry.get_default(), connections[alias]))
        )
        if text is None:
            others.append((name, entry.get_default))
        else:
            constant.append((name, text))
    return tuple(constant), tuple(others)


def literal(ready: Any) -> str | None:
    """
    Return the text of a value that is written out, None for one that is given.
    """
    if ready is None:
        return "NULL"
    if type(ready) is bool:
        return "true" if ready else "false"
    if type(ready) is int:
        return None if ready else "0"
    return "''" if type(ready) is str and not ready else None
