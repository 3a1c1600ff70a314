"""
Reading one row by its key, compiled once by the ORM: only the key differs from call to call.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from django.db import connections, models

__all__ = ["Reading", "Shape", "compiled", "converted", "read_row"]

#: Reads compiled by the ORM, by connection: they hold its converters, so they end with it.
_compiled: WeakKeyDictionary[Any, dict[Shape, Any]] = WeakKeyDictionary()


class Shape(NamedTuple):
    """
    Name what a read depends on beside the key: its model, the key's field, the attributes, the lock.
    """

    model: type[models.Model]
    key: str
    attributes: tuple[str, ...]
    is_locking: bool = False
    nowait: bool = False


class Reading(NamedTuple):
    """
    Name one read: what it depends on, and the key.
    """

    shape: Shape
    key: Any

    def parameter(self, connection: Any) -> Any:
        """
        Return the key as the driver takes it.
        """
        options: Any = self.shape.model._meta
        field = options.pk if self.shape.key == "pk" else options.get_field(self.shape.key)
        return field.get_db_prep_value(self.key, connection)


def read_row(alias: str, reading: Reading) -> Any:
    """
    Return the attributes of the row with a key, None where there is none.
    """
    connection = connections[alias]
    sql, converters = compiled(connection, reading)
    with connection.cursor() as cursor:
        cursor.execute(sql, (reading.parameter(connection),))
        row = cursor.fetchone()
    return None if row is None else converted(connection, converters, row)


def converted(connection: Any, converters: Any, row: Any) -> Any:
    """
    Return the attributes of a row as Python has them.
    """
    if not converters:
        return row
    values = list(row)
    for position, (steps, expression) in converters.items():
        for step in steps:
            values[position] = step(values[position], expression, connection)
    return values


def compiled(connection: Any, reading: Reading) -> tuple[str, Any]:
    """
    Let the ORM compile a read once for each connection; its one parameter is the key.
    """
    shape, key = reading
    known = _compiled.setdefault(connection, {})
    if shape not in known:
        rows: Any = models.QuerySet(model=shape.model, using=connection.alias).order_by()
        rows = rows.filter(**{shape.key: key}).values_list(*shape.attributes)
        if shape.is_locking:
            # Enough to keep every other move, update and delete out, while rows that refer to this one may be added.
            no_key = connection.features.has_select_for_no_key_update
            rows = rows.select_for_update(nowait=shape.nowait, no_key=no_key)
        compiler = rows.query.get_compiler(connection=connection)
        sql, _key = compiler.as_sql()
        converters = compiler.get_converters([entry for entry, _sql, _name in compiler.select])
        known[shape] = (sql, converters)
    found: tuple[str, Any] = known[shape]
    return found
