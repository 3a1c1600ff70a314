"""
The one writer: nothing else in the library changes a state.

On PostgreSQL a move is one statement; elsewhere the same rows go through the ORM in one transaction; a model that
listens to its saves is written by ``save()``. What the caller holds, a lock or a transaction, is his affair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from django.db import IntegrityError, connections, models, transaction

from django_logic.extension import SEQUENCE, Row, contributed
from django_logic.moves import HISTORY_COLUMNS, Move, history_values
from django_logic.records import history_model, history_of
from django_logic.subject import Column, remember_state

__all__ = ["MoveLost", "SequenceTaken", "apply"]


class MoveLost(Exception):
    """
    The row was not in the expected state any more; nothing was written.
    """


class SequenceTaken(Exception):
    """
    Another move of the object slipped in while the statement waited; nothing was written.
    """


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
        WHERE "instance_id" = %(instance_id)s AND "model_name" = %(model_name)s
        AND "app_label" = %(app_label)s AND "process_name" = %(process_name)s
    )
    FROM moved
    RETURNING "sequence"
){extra}
SELECT "sequence" FROM recorded
"""

#: One contributed row, inserted only if the move was.
CONTRIBUTED = """, contributed_{index} AS (
    INSERT INTO {table} ({columns}) SELECT {values} FROM recorded
)"""


def apply(move: Move) -> int:
    """
    Write a move and all that agrees with it; return the sequence of its history row.

    Transaction: joins an open one, else everything is one of its own. Afterwards the instance in memory says so too.
    Raises: MoveLost, SequenceTaken, or what the database says of the new state.
    """
    rows = contributed(move)
    held = {entry.attname: getattr(move.instance, entry.attname) for entry in move.column.auto_now}
    try:
        if move.column.listens():
            sequence = apply_by_save(move, rows)
        elif connections[move.alias].vendor == "postgresql":
            sequence = apply_by_statement(move, rows)
        else:
            sequence = apply_by_orm(move, rows)
    except BaseException as error:
        vars(move.instance).update(held)
        remember_state(move.column, move.instance, move.expected)
        if isinstance(error, IntegrityError) and "dl_history_one_sequence" in str(error):
            raise SequenceTaken(str(error)) from error
        raise
    remember_state(move.column, move.instance, move.new)
    return sequence


def time_values(move: Move) -> dict[str, Any]:
    """
    Return the ``auto_now`` columns that move with the state; sets them on the instance, as save() would.
    """
    return {entry.attname: entry.pre_save(move.instance, add=False) for entry in move.column.auto_now}


def apply_by_statement(move: Move, rows: tuple[Row, ...]) -> int:
    """
    Write by the one statement PostgreSQL takes.
    """
    connection = connections[move.alias]
    column = move.column
    shape = tuple((row.model, tuple((name, value is SEQUENCE) for name, value in row.values.items())) for row in rows)
    sql = move_statement(column, shape, move.expected is None)
    history = history_model()._meta
    parameters = {
        "pk": column.owner._meta.pk.get_db_prep_value(move.pk, connection),
        "new": column.field.get_db_prep_save(move.new, connection),
        "expected": column.field.get_db_prep_save(move.expected, connection),
        **prepared(connection, history, "", history_values(move)),
        **prepared(connection, column.owner._meta, "now_", time_values(move)),
    }
    for index, row in enumerate(rows):
        given = {name: value for name, value in row.values.items() if value is not SEQUENCE}
        parameters |= prepared(connection, row.model._meta, f"row{index}_", given)
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        written = cursor.fetchone()
    if written is None:
        raise MoveLost
    return int(written[0])


def prepared(connection: Any, options: Any, prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return values as the driver takes them, under the names the statement uses.
    """
    by_attribute = fields_by_attribute(options.model)
    return {
        f"{prefix}{name}": by_attribute[name].get_db_prep_save(value, connection) for name, value in values.items()
    }


@lru_cache(maxsize=None)
def fields_by_attribute(model: type[models.Model]) -> dict[str, Any]:
    """
    Return a model's columns by the attribute that holds them.
    """
    return {entry.attname: entry for entry in model._meta.concrete_fields}


@lru_cache(maxsize=1024)
def move_statement(column: Column, shape: tuple[Any, ...], from_null: bool) -> str:
    """
    Compose the statement for a column and the shape of what is contributed.
    """
    owner, history = column.owner._meta, history_model()._meta
    assigned = [f"{quoted(column.field.column)} = %(new)s"]
    assigned += [f"{quoted(entry.column)} = %(now_{entry.attname})s" for entry in column.auto_now]
    extra = []
    for index, (model, names) in enumerate(shape):
        columns = fields_by_attribute(model)
        extra.append(
            CONTRIBUTED.format(
                index=index,
                table=quoted(model._meta.db_table),
                columns=", ".join(quoted(columns[name].column) for name, _ in names),
                values=", ".join('"sequence"' if taken else f"%(row{index}_{name})s" for name, taken in names),
            )
        )
    return MOVE.format(
        table=quoted(owner.db_table),
        assignments=", ".join(assigned),
        pk=quoted(owner.pk.column),
        state=quoted(column.field.column),
        is_expected="IS NULL" if from_null else "= %(expected)s",
        history=quoted(history.db_table),
        columns=", ".join(f'"{name}"' for name in HISTORY_COLUMNS),
        values=", ".join(f"%({name})s" for name in HISTORY_COLUMNS),
        extra="".join(extra),
    )


def quoted(name: str) -> str:
    """
    Quote a name for PostgreSQL inside a statement with parameters; a name quoted already stays as it is.
    """
    inner = name if name.startswith('"') and name.endswith('"') else '"{}"'.format(name.replace('"', '""'))
    return inner.replace("%", "%%")


def apply_by_orm(move: Move, rows: tuple[Row, ...]) -> int:
    """
    Write the same rows through the ORM in one transaction.
    """
    column = move.column
    state = {column.field.attname: move.new, **time_values(move)}
    with transaction.atomic(using=move.alias):
        source = models.QuerySet(model=column.owner, using=move.alias).filter(pk=move.pk)
        expected = {f"{column.field.attname}__isnull": True} if move.expected is None else {column.field.attname: move.expected}
        if not source.filter(**expected).update(**state):
            raise MoveLost
        return record(move, rows)


def apply_by_save(move: Move, rows: tuple[Row, ...]) -> int:
    """
    Write through ``save()`` so that an override and receivers take part, then the rows.

    Transaction: opens one, and locks the row where the caller has not.
    """
    column = move.column
    fields = [column.field.name, *(entry.name for entry in column.auto_now)]
    row = models.QuerySet(model=column.owner, using=move.alias).filter(pk=move.pk).order_by()
    with transaction.atomic(using=move.alias):
        if stored_state(row.select_for_update(), column) != (move.expected,):
            raise MoveLost
        remember_state(column, move.instance, move.new)
        move.instance.save(using=move.alias, update_fields=fields)
        # An override that saves nothing, or something else, must not leave a record of a move that was none.
        if stored_state(row, column) != (move.new,):
            raise MoveLost
        return record(move, rows)


def stored_state(row: Any, column: Column) -> Any:
    """
    Read the state column of one row: a tuple of one, or None when the row is gone.
    """
    return row.values_list(column.field.attname).first()


def record(move: Move, rows: Iterable[Row]) -> int:
    """
    Insert the history row with the next sequence, and the contributed rows.

    Transaction: needs the caller's, with the object's row locked or written.
    """
    history = history_model()
    sequence = next_sequence(move)
    history.objects.using(move.alias).bulk_create([history(**history_values(move), sequence=sequence)])
    for row in rows:
        values = {name: sequence if value is SEQUENCE else value for name, value in row.values.items()}
        models.QuerySet(model=row.model, using=move.alias).bulk_create([row.model(**values)])
    return sequence


def next_sequence(move: Move) -> int:
    """
    Return the sequence the next history row of the object takes.

    A locking read where the database has one: under REPEATABLE READ a plain one would see an old snapshot.
    """
    newest = history_of(move.column, move.key, move.alias).order_by("-sequence")
    if connections[move.alias].features.has_select_for_update:
        newest = newest.select_for_update()
    return int(newest.values_list("sequence", flat=True).first() or 0) + 1
