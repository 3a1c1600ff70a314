"""
The one writer: nothing else in the library changes a state.

On PostgreSQL a move is one statement; elsewhere the same rows go through the ORM in one transaction; a model that
listens to its saves is written by ``save()``. What the caller holds, a lock or a transaction, is his affair.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from django.core.serializers.json import DjangoJSONEncoder
from django.db import IntegrityError, connections, models, transaction
from django.db.models import Max

from django_logic.extension import SEQUENCE, Row, contributed, contributors_are_active
from django_logic.moves import Member, Move, MoveLost, SequenceTaken, history_values
from django_logic.records import history_model, may_read_old_snapshot, newest_sequence
from django_logic.statements import many_statement, move_statement, prepared
from django_logic.subject import Column, recall, remember_state, times_of

__all__ = ["MoveLost", "SequenceTaken", "apply", "apply_many", "record_birth"]


#: The first PostgreSQL that makes random UUIDs without an extension.
FIRST_WITH_UUIDS = 130000


def apply(move: Move) -> int:
    """
    Write a move and all that agrees with it; return the sequence of its history row.

    Transaction: joins an open one, else everything is one of its own. Afterwards the instance in memory says so too.
    Raises: MoveLost, SequenceTaken, or what the database says of the new state.
    """
    instance = move.instance
    if instance is None:
        raise TypeError("apply() moves one instance and was given a move without one. Use apply_many().")
    rows = contributed(move)
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
    return sequence


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


def apply_by_statement(move: Move, rows: tuple[Row, ...]) -> int:
    """
    Write by the one statement PostgreSQL takes.
    """
    connection = connections[move.alias]
    column = move.column
    shape = tuple((row.model, tuple((name, value is SEQUENCE) for name, value in row.values.items())) for row in rows)
    sql = move_statement(column, shape, move.expected is None)
    parameters = {
        "pk": column.owner._meta.pk.get_db_prep_value(move.pk, connection),
        "new": column.field.get_db_prep_save(move.new, connection),
        "expected": column.field.get_db_prep_save(move.expected, connection),
        # Plain text, UUIDs and times need no preparation on PostgreSQL, which the fast path feels.
        **history_values(move),
        "metadata": json.dumps(move.metadata, cls=DjangoJSONEncoder) if move.metadata else "{}",
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
    sequence = insert_history(move)
    for row in rows:
        values = {name: sequence if value is SEQUENCE else value for name, value in row.values.items()}
        table(row.model, move.alias).bulk_create([row.model(**values)])
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


def apply_many(move: Move, pks: Sequence[Any]) -> int:
    """
    Write one move of many objects between the same two states; return how many there were.

    Transaction: needs the caller's, in which the rows are locked and known to be in the expected state.
    Raises: MoveLost when a row was not.
    """
    is_telling = contributors_are_active()
    if fits_statement(move, pks):
        count, members = move_many_by_statement(move, pks, is_telling)
    else:
        count, members = move_many_by_orm(move, pks)
    if count != len(pks):
        raise MoveLost
    if is_telling:
        contribute_many(move, members)
    return count


def fits_statement(move: Move, pks: Sequence[Any]) -> bool:
    """
    Tell whether the database makes UUIDs itself and writes this kind of key as Python does.
    """
    connection: Any = connections[move.alias]
    is_able = connection.vendor == "postgresql" and connection.pg_version >= FIRST_WITH_UUIDS
    return is_able and isinstance(pks[0], (int, str, UUID))


def contribute_many(move: Move, members: Iterable[Member]) -> None:
    """
    Insert what is contributed to each of many moves, one statement for each kind of row.
    """
    waiting: dict[type[models.Model], list[models.Model]] = {}
    for member in members:
        single = replace(move, pk=member.pk, key=member.key, transition_id=member.transition_id)
        for row in contributed(single):
            values = {name: member.sequence if value is SEQUENCE else value for name, value in row.values.items()}
            waiting.setdefault(row.model, []).append(row.model(**values))
    for model, rows in waiting.items():
        table(model, move.alias).bulk_create(rows)


def move_many_by_statement(move: Move, pks: Sequence[Any], is_telling: bool) -> tuple[int, list[Member]]:
    """
    Write states and history of many objects in one statement; only a telling one says which ids it gave.
    """
    connection, column = connections[move.alias], move.column
    key = column.owner._meta.pk
    parameters = {
        **history_values(move),
        "metadata": "{}",
        "pks": [key.get_db_prep_value(pk, connection) for pk in pks],
        "new": column.field.get_db_prep_save(move.new, connection),
        "expected": column.field.get_db_prep_save(move.expected, connection),
        **prepared(connection, column.owner._meta, "now_", time_values(move)),
    }
    sql = many_statement(column, key.rel_db_type(connection), move.expected is None, is_telling)
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        if not is_telling:  # ten thousand UUIDs nobody reads cost as much as the statement
            return cursor.rowcount, []
        by_key = {str(pk): pk for pk in pks}
        members = [Member(by_key[text], text, *ids) for text, *ids in cursor.fetchall()]
    return len(members), members


def move_many_by_orm(move: Move, pks: Sequence[Any]) -> tuple[int, list[Member]]:
    """
    Write states and history of many objects through the ORM.
    """
    column, history = move.column, history_model()
    source = table(column.owner, move.alias).filter(pk__in=pks).filter(**expectation(move))
    if source.update(**{column.field.attname: move.new}, **time_values(move)) != len(pks):
        return 0, []
    newest = history.objects.using(move.alias).filter(
        app_label=column.app_label,
        model_name=column.model_name,
        instance_id__in=[str(pk) for pk in pks],
        process_name=column.process_name,
    )
    found = dict(newest.order_by().values_list("instance_id").annotate(Max("sequence")))
    members = [Member(pk, str(pk), uuid4(), found.get(str(pk), 0) + 1) for pk in pks]
    values = history_values(move)
    rows = [
        history(**{**values, "instance_id": one.key, "transition_id": one.transition_id, "sequence": one.sequence})
        for one in members
    ]
    history.objects.using(move.alias).bulk_create(rows)
    return len(members), members


def expectation(move: Move) -> dict[str, Any]:
    """
    Return the filter that holds while a row is where the move expects it.
    """
    name = move.column.field.attname
    return {f"{name}__isnull": True} if move.expected is None else {name: move.expected}
