"""
The text of the writer's statements for PostgreSQL; `django_logic.writer` alone executes them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.db import models

from django_logic.moves import HISTORY_COLUMNS
from django_logic.records import history_model
from django_logic.spelling import BETWEEN, DIFFERS, NUMBERED, fields_by_attribute, quoted_text
from django_logic.subject import Column

__all__ = ["many_statement", "move_statement", "rows_statement"]

#: One move: the state, its time columns, the history row with the next sequence and the contributed rows, or nothing.
MOVE = """
WITH moved AS (
    UPDATE {table} SET {assignments}
    WHERE {pk} = %(pk)s AND {state} {is_expected}
    RETURNING {pk}
), recorded AS (
    INSERT INTO {history} ({columns}, "sequence")
    SELECT {values}, (
        SELECT COALESCE(MAX("sequence"), 0) + 1 FROM {history}
        WHERE "instance_id" = %(instance_id)s::varchar AND "model_name" = {model_name}
        AND "app_label" = {app_label} AND "process_name" = {process_name}
    )
    FROM moved
    RETURNING "sequence"
){extra}
SELECT "sequence"{changes} FROM recorded
"""

#: One contributed row, inserted only if the move was.
CONTRIBUTED = """, contributed_{index} AS (
    INSERT INTO {table} ({columns}) SELECT {values} FROM recorded{after}
    RETURNING 1
)"""
#: Parts nobody refers to run in any order, and the keys of one table are given in the order of the inserts.
AFTER = " WHERE (SELECT COUNT(*) FROM contributed_{index}) = 1"

#: The change of a row that has to agree with the move, if the move was and the row still is as expected.
CHANGED = """, changed AS (
    UPDATE {table} SET {assignments}
    WHERE {pk} = %(change_pk)s AND {expectations} AND EXISTS (SELECT FROM recorded){unless}
    RETURNING {pk}
)"""
UNLESS = " AND NOT EXISTS (SELECT FROM {table} WHERE {column} = %(change_pk)s)"
COUNT_CHANGES = ", (SELECT COUNT(*) FROM changed)"

#: Many moves between the same two states; the rows are locked by the caller. Keys are whole numbers, UUIDs or text,
#: which PostgreSQL and Python write alike.
MOVE_MANY = """
WITH moved AS (
    UPDATE {table} SET {assignments}
    WHERE {pk} = ANY(%(pks)s::{pk_type}[]) AND {state} {is_expected}
    RETURNING {pk}::text AS instance_id
)
INSERT INTO {history} ({columns}, "sequence")
SELECT {values}, (
    SELECT COALESCE(MAX("sequence"), 0) + 1 FROM {history}
    WHERE "instance_id" = moved.instance_id AND "model_name" = %(model_name)s::varchar
    AND "app_label" = %(app_label)s::varchar AND "process_name" = %(process_name)s::varchar
)
FROM moved
{returning}
"""
RETURNING = 'RETURNING "instance_id", "transition_id", "sequence"'

#: Many rows of one kind; what differs from row to row comes in one JSON document, whose text a driver binds at once.
INSERT_MANY = """
INSERT INTO {table} ({columns}) SELECT {values}
FROM ROWS FROM (JSON_TO_RECORDSET(%(rows)s::json) AS ({types})) WITH ORDINALITY AS given ({names}, place)
ORDER BY place
"""

#: The types of the history columns that are not text. Each value is cast, since one name stands in several places and
#: a driver that binds on the server would be told different types for it.
TYPES = {
    "occurred_at": "timestamptz",
    "transition_id": "uuid",
    "root_id": "uuid",
    "parent_id": "uuid",
    "metadata": "jsonb",
}

#: What differs from object to object when many move; every other history column is the same for all.
PER_OBJECT = {"instance_id": "moved.instance_id", "transition_id": "gen_random_uuid()"}


@lru_cache(maxsize=1024)
def move_statement(
    column: Column,
    history: tuple[str | None, ...],
    shape: tuple[Any, ...],
    change: tuple[Any, ...] | None,
    from_null: bool,
) -> str:
    """
    Compose the statement for a column, the history columns that are written out, and the shape of what is contributed.
    """
    extra, last = [], dict[type[models.Model], int]()
    for index, (model, names) in enumerate(shape):
        columns = fields_by_attribute(model)
        extra.append(
            CONTRIBUTED.format(
                index=index,
                after=AFTER.format(index=last[model]) if model in last else "",
                table=quoted(model._meta.db_table),
                columns=", ".join(quoted(columns[name].column) for name, _ in names),
                values=", ".join(placed(kind, f"row{index}_{name}") for name, kind in names),
            )
        )
        last[model] = index
    if change is not None:
        extra.append(change_part(*change))
    subject = subject_of(column)
    values = ", ".join(
        subject.get(name) or bound(name, text) for name, text in zip(HISTORY_COLUMNS, history, strict=True)
    )
    changes = COUNT_CHANGES if change is not None else ""
    names = {**names_of(column, from_null), **subject}
    return MOVE.format(**names, values=values, extra="".join(extra), changes=changes)


def change_part(
    model: type[models.Model], expected: tuple[Any, ...], values: tuple[Any, ...], unless: tuple[Any, str] | None
) -> str:
    """
    Compose the part of a move's statement that changes another row.
    """
    columns = {name: quoted(entry.column) for name, entry in fields_by_attribute(model).items()}
    expectations = [
        f"{columns[name]} IS NULL" if kind == "NULL" else f"{columns[name]} = {placed(kind, f'was_{name}')}"
        for name, kind in expected
    ]
    forbidden = ""
    if unless is not None:
        other, attribute = unless
        column = quoted(fields_by_attribute(other)[attribute].column)
        forbidden = UNLESS.format(table=quoted(other._meta.db_table), column=column)
    return CHANGED.format(
        unless=forbidden,
        table=quoted(model._meta.db_table),
        pk=quoted(model._meta.pk.column),
        expectations=" AND ".join(expectations),
        assignments=", ".join(f"{columns[name]} = {placed(kind, f'change_{name}')}" for name, kind in values),
    )


def placed(kind: str, name: str) -> str:
    """
    Return the place of a value in a statement, or what stands there.
    """
    match kind:
        case "sequence":
            return '"sequence"'
        case "now":
            return "STATEMENT_TIMESTAMP()"
        case "moment":
            return f"STATEMENT_TIMESTAMP() + %({name})s::double precision * INTERVAL '1 second'"
        case "given":
            return f"%({name})s"
        case "document":
            return f"%({name})s::jsonb"
        case _ if kind.startswith(NUMBERED):
            places = map(quoted_text, kind.removeprefix(NUMBERED).split(BETWEEN))
            pairs = ", ".join(f'{place}, "sequence"' for place in places)
            return f"%({name})s::jsonb || JSONB_BUILD_OBJECT({pairs})"
        case _:
            return kind


@lru_cache(maxsize=1024)
def many_statement(column: Column, pk_type: str, from_null: bool, is_telling: bool) -> str:
    """
    Compose the statement for many objects of a column.
    """
    values = ", ".join(PER_OBJECT.get(name, bound(name)) for name in HISTORY_COLUMNS)
    returning = RETURNING if is_telling else ""
    return MOVE_MANY.format(**names_of(column, from_null), values=values, pk_type=pk_type, returning=returning)


@lru_cache(maxsize=1024)
def rows_statement(model: type[models.Model], shape: tuple[tuple[str, str], ...], types: tuple[str, ...]) -> str:
    """
    Compose the statement for many rows of a model: what all of them say, behind it the types of what differs.
    """
    columns = {name: entry.column for name, entry in fields_by_attribute(model).items()}
    differing = [quoted(f"value{index}") for index in range(len(types))]
    alike = [placed(kind, f"all_{name}") for name, kind in shape if kind != DIFFERS]
    names = [name for name, kind in shape if kind != DIFFERS] + [name for name, kind in shape if kind == DIFFERS]
    return INSERT_MANY.format(
        table=quoted(model._meta.db_table),
        columns=", ".join(quoted(columns[name]) for name in names),
        values=", ".join(alike + [f"given.{name}" for name in differing]),
        types=", ".join(f"{name} {kind}" for name, kind in zip(differing, types, strict=True)),
        names=", ".join(differing),
    )


def bound(name: str, text: str | None = None) -> str:
    """
    Return the place of a history column's value, or the text that stands there.
    """
    return f"{text or f'%({name})s'}::{TYPES.get(name, 'varchar')}"


def subject_of(column: Column) -> dict[str, str]:
    """
    Return what every move of a column says of its object, written out.
    """
    names = ("app_label", "model_name", "process_name")
    told = {name: getattr(column, name) for name in names} | {"field_name": column.field.name}
    return {name: f"{quoted_text(text)}::varchar" for name, text in told.items()}


def names_of(column: Column, from_null: bool) -> dict[str, str]:
    """
    Return the names and fragments every statement about a column shares.
    """
    owner = column.owner._meta
    assigned = [f"{quoted(column.field.column)} = %(new)s"]
    assigned += [f"{quoted(entry.column)} = %(now_{entry.attname})s" for entry in column.auto_now]
    return {
        "table": quoted(owner.db_table),
        "assignments": ", ".join(assigned),
        "pk": quoted(owner.pk.column),
        "state": quoted(column.field.column),
        "is_expected": "IS NULL" if from_null else "= %(expected)s",
        "history": quoted(history_model()._meta.db_table),
        "columns": ", ".join(f'"{name}"' for name in HISTORY_COLUMNS),
    }


def quoted(name: Any) -> str:
    """
    Quote a name for PostgreSQL inside a statement with parameters; a name quoted already stays as it is.
    """
    inner: str = name if name.startswith('"') and name.endswith('"') else '"{}"'.format(name.replace('"', '""'))
    return inner.replace("%", "%%")
