"""
Claiming where PostgreSQL's statement does not run: by the ORM, with skipped locks where the database has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import connections, transaction
from django.db.models import Exists, Q

from django_logic.background.lanes import Lane
from django_logic.background.models import Cancellation, Kind, TransitionMessage
from django_logic.clock import FromNow
from django_logic.locks import take_write_lock

__all__ = ["due", "is_held", "take_first", "unclaimed"]


def due(alias: str, lanes: Iterable[Lane]) -> Any:
    """
    Return the rows that are due, first first.
    """
    return (
        TransitionMessage.objects.using(alias)
        .open()
        .filter(queue_name__in={lane.queue for lane in lanes}, run_at__lte=FromNow())
        .filter(Q(kind=Kind.TRANSITION) | ~Exists(TransitionMessage.objects.using(alias).ahead()))
        .order_by("priority", "run_at", "id")
    )


def unclaimed(alias: str, pk: int) -> Any:
    """
    Return one open row, unless somebody has just claimed it.
    """
    return claimable(alias).filter(pk=pk)


def claimable(alias: str) -> Any:
    """
    Return the open rows that nobody has just claimed.
    """
    rows = TransitionMessage.objects.using(alias).open()
    return rows.filter(Q(claim_token=None) | Q(run_at__lte=FromNow()))


def take_first(alias: str, rows: Any, parameters: dict[str, Any]) -> TransitionMessage | None:
    """
    Claim the first of some rows; the conditional update decides where rows can't be locked.
    """
    can_skip = connections[alias].features.has_select_for_update_skip_locked
    with transaction.atomic(using=alias):
        if not connections[alias].features.has_select_for_update:
            take_write_lock(TransitionMessage, alias)
        found = list(rows.values_list("pk", flat=True)[:20])
        if can_skip and found:  # locking the index ranges a search goes through would make claims wait for each other
            # Somebody may have claimed one since it was found; the lock shows it as it is now.
            lockable = claimable(alias).filter(pk__in=found).select_for_update(skip_locked=True)
            still = {row.pk: row for row in lockable}
        else:
            still = TransitionMessage.objects.using(alias).in_bulk(found[:1])
        for pk in found:
            message: TransitionMessage | None = still.get(pk)
            if message is not None and stamp(alias, message, parameters):
                return message
    return None


def stamp(alias: str, message: TransitionMessage, parameters: dict[str, Any]) -> bool:
    """
    Write a claim on a row, if it still is as it was read; the message says so too afterwards.
    """
    before = {
        "claim_token": message.claim_token,
        "attempts_started": message.attempts_started,
        "is_completed": False,
    }
    values: dict[str, Any] = {}
    if message.attempts_started > message.errors_count:
        values |= {"errors_count": message.attempts_started, "last_error_message": parameters["lost"]}
    limit = message.attempts_allowed
    values["attempts_started"] = message.attempts_started + (message.attempts_started < limit)
    values |= {"claim_token": parameters["token"], "worker": parameters["worker"]}
    values["code_version"] = parameters["code_version"]
    moments = {"started_at": FromNow(), "modified": FromNow(), "run_at": FromNow(parameters["lease"])}
    if "last_error_message" in values:
        moments["last_error_dt"] = FromNow()
    rows = TransitionMessage.objects.using(alias).filter(pk=message.pk, **before)
    if not rows.update(**values, **moments):
        return False
    for name, value in values.items():
        setattr(message, name, value)
    message.started_at = TransitionMessage.objects.using(alias).values_list("started_at", flat=True).get(pk=message.pk)
    return True


def is_held(message: TransitionMessage, alias: str) -> bool | None:
    """
    Lock a claimed row; return whether somebody asked to cancel it, None when the claim is not ours any more.

    Transaction: needs the caller's.
    """
    rows = TransitionMessage.objects.using(alias).filter(
        pk=message.pk, claim_token=message.claim_token, is_completed=False
    )
    if connections[alias].features.has_select_for_update:
        found = rows.select_for_update().exists()
    else:  # where rows can't be locked this write keeps every other writer out until the end
        found = bool(rows.update(claim_token=message.claim_token))
    return Cancellation.objects.using(alias).filter(message_id=message.pk).exists() if found else None
