"""
Inserting many rows of one kind: by one statement that says once what all of them say, or through the ORM.

The statement is what makes rows that go with a big set cheap: a driver binds one document in the place of thousands of
values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, models

from django_logic.clock import FromNow
from django_logic.spelling import DIFFERS, fields_by_attribute, spelled, written_out
from django_logic.statements import rows_statement
from django_logic.writer.rows import table

__all__ = ["insert_set"]

#: What PostgreSQL reads from JSON as Python wrote it.
PLAIN = (str, int, bool, UUID, type(None))


def insert_set(model: type[models.Model], rows: Sequence[Mapping[str, Any]], alias: str) -> None:
    """
    Insert rows, given by attribute name, in their order.

    Transaction: the caller's.
    """
    if connections[alias].vendor != "postgresql" or not insert_by_statement(model, rows, alias):
        table(model, alias).bulk_create([model(**values) for values in rows])


def insert_by_statement(model: type[models.Model], rows: Sequence[Mapping[str, Any]], alias: str) -> bool:
    """
    Insert rows by the one statement, unless their columns differ or a value can't be said in JSON.
    """
    names = tuple(rows[0])
    if any(tuple(row) != names for row in rows):
        return False
    constant, others = written_out(alias, model, names)
    columns = {name: [row[name] for row in rows] for name in names}
    columns |= {name: [value() for _row in rows] for name, value in others}
    alike = {name: values[0] for name, values in columns.items() if are_alike(values)}
    differing = {name: in_json(alias, model, name, columns[name]) for name in columns if name not in alike}
    if not differing or None in differing.values() or any(map(is_expression, alike.values())):
        return False
    parameters: dict[str, Any] = {}
    shape = spelled(connections[alias], model, "all_", alike, parameters) + constant
    shape += tuple((name, DIFFERS) for name in differing)
    types = tuple(str(fields_by_attribute(model)[name].db_type(connections[alias])) for name in differing)
    keys = [f"value{index}" for index in range(len(differing))]
    document = [dict(zip(keys, values, strict=True)) for values in zip(*differing.values(), strict=True)]
    parameters["rows"] = json.dumps(document, cls=DjangoJSONEncoder)
    with connections[alias].cursor() as cursor:
        cursor.execute(rows_statement(model, shape, types), parameters)
    return True


def are_alike(values: Sequence[Any]) -> bool:
    """
    Tell whether a column says the same in every row.
    """
    first = values[0]
    if isinstance(first, FromNow):
        return all(isinstance(value, FromNow) and value.seconds == first.seconds for value in values)
    return all(value is first or (type(value) is type(first) and value == first) for value in values)


def in_json(alias: str, model: type[models.Model], name: str, values: Sequence[Any]) -> Sequence[Any] | None:
    """
    Return the values of a column as JSON says them, None where it can't.
    """
    entry = fields_by_attribute(model)[name]
    if type(entry) is models.JSONField:
        is_said = entry.encoder is DjangoJSONEncoder and all(isinstance(value, dict) for value in values)
        return values if is_said else None
    if any(map(is_expression, values)) or "[" in str(entry.db_type(connections[alias])):
        return None
    ready = [entry.get_db_prep_save(value, connections[alias]) for value in values]
    return ready if all(type(value) in PLAIN for value in ready) else None


def is_expression(value: Any) -> bool:
    """
    Tell whether the database computes a value in a way that only the ORM can say.
    """
    return hasattr(value, "as_sql") and not isinstance(value, FromNow)
