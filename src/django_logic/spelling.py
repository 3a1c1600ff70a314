"""
How a statement says a value: as a parameter, written out, or computed by the database.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import datetime
from functools import cache, lru_cache, partial
from typing import Any
from uuid import UUID

from django.db import connections, models

from django_logic.clock import FromNow
from django_logic.rows import SEQUENCE, Document, Row

__all__ = [
    "BETWEEN",
    "DIFFERS",
    "NUMBERED",
    "fields_by_attribute",
    "literal",
    "prepared",
    "quoted_text",
    "spelled",
    "spelled_row",
    "written_out",
]

#: Marks a JSON object that gets the move's sequence under the names behind it.
NUMBERED = "numbered:"
#: Marks what is not the same in all of many rows.
DIFFERS = "differs"
#: Parts these names; no name in JSON that a database stores holds it.
BETWEEN = "\0"

#: Fields that give the driver such a value as it is.
READY_IN: dict[type[models.Field[Any, Any]], type] = {
    models.CharField: str,
    models.TextField: str,
    models.UUIDField: UUID,
    models.DateTimeField: datetime,
}
#: Defaults that are made anew each time and always say the same; the class stands for no default at all.
ALWAYS_ALIKE = (models.NOT_PROVIDED, list, dict)


@cache
def fields_by_attribute(model: type[models.Model]) -> dict[str, Any]:
    """
    Return a model's columns by the attribute that holds them.
    """
    return {entry.attname: entry for entry in model._meta.concrete_fields}


@cache
def ready_types(model: type[models.Model]) -> dict[str, type | None]:
    """
    Return of what type a value is that a model's column takes as it is.
    """
    targets = {name: getattr(entry, "target_field", entry) for name, entry in fields_by_attribute(model).items()}
    return {name: READY_IN.get(type(target)) for name, target in targets.items()}


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
    by_attribute, ready_in, shape = fields_by_attribute(model), ready_types(model), []
    for name, value in values.items():
        if type(value) is ready_in[name] and is_ready(value):
            kind, ready = "given", value
        else:
            kind, ready = said(connection, by_attribute[name], value)
        if ready is not None:
            parameters[f"{prefix}{name}"] = ready
        shape.append((name, kind))
    return tuple(shape)


def is_ready(value: Any) -> bool:
    """
    Tell whether a value of a fitting type needs no more than to be given: a text that is not empty, a time with a zone.
    """
    return value.tzinfo is not None if type(value) is datetime else value != ""


def said(connection: Any, field: Any, value: Any) -> tuple[str, Any]:
    """
    Return how a statement says one value, and its parameter; None for no parameter.
    """
    if value is SEQUENCE:
        return "sequence", None
    if type(field) is models.JSONField and isinstance(value, dict):
        document = value if isinstance(value, Document) else Document(value, field.encoder)
        pending = BETWEEN.join(document.pending)
        return (f"{NUMBERED}{pending}" if pending else "document"), document.text
    if isinstance(value, FromNow):
        return ("moment", value.seconds) if value.seconds else ("now", None)
    ready = field.get_db_prep_save(value, connection)
    text = literal(ready)
    return (text, None) if text else ("given", ready)


def spelled_row(connection: Any, row: Row, prefix: str, parameters: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """
    Return how a statement says the values of a new row; those that are left out are the model's defaults.
    """
    shape = spelled(connection, row.model, prefix, row.values, parameters)
    constant, others = written_out(connection.alias, row.model, tuple(row.values), row.alike)
    if not others:
        return shape + constant
    given = {name: value() for name, value in others}
    return shape + constant + spelled(connection, row.model, prefix, given, parameters)


@lru_cache(maxsize=1024)
def written_out(
    alias: str, model: type[models.Model], names: tuple[str, ...], alike: tuple[tuple[str, Any], ...] = ()
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, Callable[[], Any]], ...]]:
    """
    Return the columns that a row's own values don't name: those that are written out, and how others are made.

    They say what is alike in rows of its kind, else the default of their field where the database has none.
    """
    known, constant, others = dict(alike), [], []
    for name, entry in fields_by_attribute(model).items():
        is_given = name in known
        if name in names or (not is_given and (entry.db_returning or getattr(entry, "generated", False))):
            continue
        make = partial(deepcopy, known[name]) if is_given else entry.get_default
        is_constant = is_given or entry.default in ALWAYS_ALIKE or not callable(entry.default)
        text = constant_text(connections[alias], entry, make()) if is_constant else None
        if text is None:
            others.append((name, make))
        else:
            constant.append((name, text))
    return tuple(constant), tuple(others)


def constant_text(connection: Any, entry: Any, value: Any) -> str | None:
    """
    Return the text of a value that many rows share, None for one that can't be written out.
    """
    if isinstance(value, FromNow):
        return None if value.seconds else "now"
    if type(entry) is models.JSONField and value in ([], {}):
        return f"'{json.dumps(value)}'::jsonb"
    ready = entry.get_db_prep_save(value, connection)
    if isinstance(ready, int) and not isinstance(ready, bool):
        return str(int(ready))
    # A server may read what stands behind a backslash in its own way.
    if isinstance(ready, str) and "\\" not in ready and "\0" not in ready:
        return quoted_text(ready)
    return literal(ready)


def quoted_text(value: str) -> str:
    """
    Write a text out inside a statement with parameters.
    """
    return "'{}'".format(value.replace("'", "''").replace("%", "%%"))


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
