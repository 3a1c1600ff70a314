"""
Writing one move of many objects at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from django.db import connections, models
from django.db.models import Max

from django_logic.extension import contributed, contributors_are_active, written
from django_logic.moves import Member, Move, MoveLost, history_values
from django_logic.records import history_model
from django_logic.rows import OBJECT_KEY, TRANSITION_ID, Row, settled
from django_logic.spelling import prepared
from django_logic.statements import many_statement
from django_logic.writer.rows import expectation, table, time_values
from django_logic.writer.sets import insert_set

__all__ = ["apply_many", "insert_for_many"]

#: The first PostgreSQL that makes random UUIDs without an extension.
FIRST_WITH_UUIDS = 130000


def apply_many(move: Move, pks: Sequence[Any]) -> int:
    """
    Write one move of many objects between the same two states; return how many there were.

    Transaction: needs the caller's, in which the rows are locked and known to be in the expected state.
    Raises: MoveLost when a row was not.
    """
    is_telling = contributors_are_active() or bool(move.rows)
    if fits_statement(move, pks):
        count, members = move_many_by_statement(move, pks, is_telling)
    else:
        count, members = move_many_by_orm(move, pks)
    if count != len(pks):
        raise MoveLost
    if is_telling:
        contribute_many(move, members)
        written(move.alias)
    return count


def insert_for_many(row: Row, pks: Sequence[Any], alias: str) -> int:
    """
    Insert one row for each of many objects that stay where they are; return how many.

    Transaction: the caller's.
    """
    members = [Member(pk, str(pk), uuid4(), 0) for pk in pks]
    rows = [{name: value_for(one, value) for name, value in row.everything.items()} for one in members]
    insert_set(row.model, rows, alias)
    return len(members)


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
    waiting: dict[type[models.Model], list[dict[str, Any]]] = {}
    for member in members:
        single = replace(move, pk=member.pk, key=member.key, transition_id=member.transition_id)
        for row in (*move.rows, *contributed(single)):
            values = {name: value_for(member, value) for name, value in row.everything.items()}
            waiting.setdefault(row.model, []).append(values)
    for model, rows in waiting.items():
        insert_set(model, rows, move.alias)


def value_for(member: Member, value: Any) -> Any:
    """
    Return a value as it is for one of many objects.
    """
    if value is OBJECT_KEY:
        return member.key
    return member.transition_id if value is TRANSITION_ID else settled(value, member.sequence)


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
