"""
The gate: while a transition's row is open, nothing else moves its object in that process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import DatabaseError, connections, models, transaction
from django.db.models import BooleanField, ExpressionWrapper, Q

from django_logic import conf
from django_logic.background.models import TransitionMessage
from django_logic.clock import FromNow
from django_logic.exceptions import BUILT_IN_MESSAGES, Refusal
from django_logic.locks import is_transient
from django_logic.records import may_read_old_snapshot
from django_logic.subject import Column, alias_of, column_of, instance_key

__all__ = ["busy", "in_flight", "stranded_seconds", "unlocked"]

#: A row that is late by less is never called stranded, however short the pauses are.
SHORTEST_STRANDED = 900.0


def busy(column: Column, alias: str, keys: Sequence[str]) -> Mapping[str, Refusal]:
    """
    Say which objects have a transition's row open, by their key; a stranded one is told apart and named.

    Transaction: none needed; holds nothing. Shape: costs one query, a second one where a row is late.
    """
    try:
        rows = open_rows(column, alias, keys)
    except Exception as error:
        if not is_transient(error):
            raise
        return {key: in_flight_refusal(None, "") for key in keys}  # an attempt holds what we tried to read
    late = [pk for _key, pk, _name, is_late in rows if is_late]
    stranded = unlocked(late, alias) if late else set()
    return {
        key: stranded_refusal(pk, name) if pk in stranded else in_flight_refusal(pk, name)
        for key, pk, name, _is_late in rows
    }


def open_rows(column: Column, alias: str, keys: Sequence[str]) -> list[tuple[str, int, str, bool]]:
    """
    Read the open rows of objects: key, id, transition, and whether each is late enough to be stranded.
    """
    is_late = ExpressionWrapper(Q(run_at__lt=FromNow(-stranded_seconds())), output_field=BooleanField())
    rows = TransitionMessage.objects.using(alias).open().transitions().about(column, *keys).order_by()
    found = rows.values_list("instance_id", "id", "transition_name", is_late)
    blocks = len(connections[alias].atomic_blocks)
    if not blocks or not may_read_old_snapshot(alias):
        return list(found)
    # The caller's transaction may not see what was committed since: under the lock it must, before it's worth a look
    # only where it would refuse, since a locking read that finds nothing keeps neighbours from inserting.
    if blocks == 1 and not found.exists():
        return []
    return list(found.select_for_update(nowait=True))


def stranded_seconds() -> float:
    """
    Return how late a row may be before nobody is thought to serve it.

    Units: seconds.
    """
    return max(conf.retry_minutes() * 60 * (conf.max_errors() + 1), SHORTEST_STRANDED)


def unlocked(pks: Iterable[int], alias: str) -> set[int]:
    """
    Return which of these rows nobody holds, without waiting for any.
    """
    rows = TransitionMessage.objects.using(alias).filter(pk__in=list(pks)).order_by()
    if not connections[alias].features.has_select_for_update_skip_locked:
        return set(rows.values_list("pk", flat=True))
    try:
        with transaction.atomic(using=alias):
            free = set(rows.select_for_update(skip_locked=True).values_list("pk", flat=True))
            transaction.set_rollback(True, using=alias)  # lets go of the locks, also in the caller's transaction
    except DatabaseError:  # a transaction that may not lock, as a read-only one
        return set()
    return free


def in_flight_refusal(pk: int | None, name: str) -> Refusal:
    """
    Say that work is open.
    """
    params = {"message_id": pk, "transition": name}
    return Refusal("background_in_flight", str(BUILT_IN_MESSAGES["background_in_flight"]), params)


def stranded_refusal(pk: int, name: str) -> Refusal:
    """
    Say that work is open and nobody runs it.
    """
    params = {"message_id": pk, "transition": name}
    return Refusal("background_stranded", str(BUILT_IN_MESSAGES["background_stranded"]), params)


def in_flight(instance: models.Model, process_name: str = "process") -> bool:
    """
    Tell whether background work of the object is open and not stranded; for answers, since it may end right after.
    """
    process: Any = getattr(instance, process_name)
    column = column_of(type(instance), process.field_name, process_name)
    reasons = busy(column, alias_of(instance), [instance_key(column, instance)])
    return any(reason.code == "background_in_flight" for reason in reasons.values())
