"""
Writing one move of one object, in the way its database and its model ask for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import IntegrityError, connections, models, transaction

from django_logic.extension import contributed, written
from django_logic.moves import ChangeLost, Move, MoveLost, SequenceTaken, history_values
from django_logic.records import history_model, may_read_old_snapshot, newest_sequence
from django_logic.rows import Change, Row
from django_logic.spelling import literal, prepared, spelled, spelled_row
from django_logic.statements import move_statement
from django_logic.subject import Column, recall, remember_state, times_of
from django_logic.writer.rows import change_row, expectation, insert_rows, table, time_values

__all__ = ["apply", "record_birth", "tell"]


def apply(move: Move) -> int:
    """
    Write a move and all that agrees with it; return the sequence of its history row.

    Transaction: joins an open one, else everything is one of its own. Afterwards the instance in memory says so too.
    Raises: MoveLost, ChangeLost, SequenceTaken, or what the database says of the new state. Without an open
    transaction a ChangeLost leaves nothing written only where the move carries its rows in one statement.
    """
    instance = move.instance
    if instance is None:
        raise TypeError("apply() moves one instance and was given a move without one. Use apply_many().")
    rows = (*move.rows, *contributed(move))
    times = times_of(move.column, instance)
    try:
        if move.column.listens():
            sequence = apply_by_save(move, instance, rows)
        elif connections[move.alias].vendor == "postgresql":
            sequence = apply_by_statement(move, rows)
        else:
            sequence = apply_by_orm(move, rows)
    except BaseException as error:
        recall(instance, times)
        remember_state(move.column, instance, move.expected)
        if is_sequence_conflict(error):
            raise SequenceTaken(str(error)) from error
        raise
    remember_state(move.column, instance, move.new)
    written(move.alias)
    return sequence


def tell(move: Move) -> None:
    """
    Insert what is contributed to work that moved nothing.

    Transaction: joins an open one, else one of its own.
    """
    with transaction.atomic(using=move.alias):
        insert_rows(contributed(move), move.alias)
    written(move.alias)


def apply_by_statement(move: Move, rows: tuple[Row, ...]) -> int:
    """
    Write by the one statement PostgreSQL takes.
    """
    connection, column = connections[move.alias], move.column
    metadata = json.dumps(move.metadata, cls=DjangoJSONEncoder) if move.metadata else "{}"
    history = {**history_values(move), "metadata": metadata}
    parameters = {
        "pk": column.owner._meta.pk.get_db_prep_value(move.pk, connection),
        "new": column.field.get_db_prep_save(move.new, connection),
        "expected": column.field.get_db_prep_save(move.expected, connection),
        # Plain text, UUIDs and times need no preparation on PostgreSQL, which the fast path feels.
        **history,
        **prepared(connection, column.owner._meta, "now_", time_values(move)),
    }
    shape = tuple(
        (row.model, spelled_row(connection, row, f"row{index}_", parameters)) for index, row in enumerate(rows)
    )
    change = None if move.change is None else spelled_change(connection, move.change, parameters)
    told = tuple(map(literal, history.values()))
    sql = move_statement(column, told, shape, change, move.expected is None)
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        found = cursor.fetchone()
    if found is None:
        raise MoveLost
    if move.change is not None and not found[1]:
        raise ChangeLost
    return int(found[0])


def spelled_change(connection: Any, change: Change, parameters: dict[str, Any]) -> tuple[Any, ...]:
    """
    Return what of a change the text of its statement depends on, and add the rest to the parameters.
    """
    parameters["change_pk"] = change.pk
    expected = spelled(connection, change.model, "was_", change.expected, parameters)
    values = spelled(connection, change.model, "change_", change.values, parameters)
    unless = None if change.unless is None else (change.unless.model, change.unless.attribute)
    return change.model, expected, values, unless


def apply_by_orm(move: Move, rows: tuple[Row, ...]) -> int:
    """
    Write the same rows through the ORM in one transaction.
    """
    column = move.column
    state = {column.field.attname: move.new, **time_values(move)}
    with transaction.atomic(using=move.alias):
        source = table(column.owner, move.alias).filter(pk=move.pk)
        if not source.filter(**expectation(move)).update(**state):
            raise MoveLost
        return record(move, rows)


def apply_by_save(move: Move, instance: models.Model, rows: tuple[Row, ...]) -> int:
    """
    Write through ``save()`` so that an override and receivers take part, then the rows.

    Transaction: opens one, and locks the row where the caller has not.
    """
    column = move.column
    fields = [column.field.name, *(entry.name for entry in column.auto_now)]
    row = table(column.owner, move.alias).filter(pk=move.pk).order_by()
    with transaction.atomic(using=move.alias):
        if stored_state(row.select_for_update(), column) != (move.expected,):
            raise MoveLost
        remember_state(column, instance, move.new)
        instance.save(using=move.alias, update_fields=fields)
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
    if move.change is not None:
        change_row(move.change, move.alias)
    sequence = insert_history(move)
    insert_rows(rows, move.alias, sequence)
    return sequence


def insert_history(move: Move) -> int:
    """
    Insert the history row of a move; return its sequence.

    An old snapshot may show a sequence that is taken, and since there are no gaps always one that is. Locking
    reads alone would lock the gap behind an object's history, and with it the first moves of its neighbours.
    """
    history = history_model()

    def insert(*, is_locking: bool) -> int:
        sequence = newest_sequence(move.column, move.key, move.alias, is_locking=is_locking) + 1
        history.objects.using(move.alias).bulk_create([history(**history_values(move), sequence=sequence)])
        return sequence

    if not may_read_old_snapshot(move.alias):
        return insert(is_locking=False)
    try:
        with transaction.atomic(using=move.alias):
            return insert(is_locking=False)
    except IntegrityError as error:
        if not is_sequence_conflict(error):
            raise
    return insert(is_locking=True)


def is_sequence_conflict(error: BaseException) -> bool:
    """
    Tell a taken sequence from every other violation.
    """
    return isinstance(error, IntegrityError) and "dl_history_one_sequence" in str(error)


def record_birth(move: Move) -> None:
    """
    Record in which state an object was born; the row itself is saved already.

    Transaction: opens its own or a savepoint.
    """
    with transaction.atomic(using=move.alias):
        record(move, ())
