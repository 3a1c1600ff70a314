"""
Cancelling background work: a row nobody holds ends at once through the failure path; a running attempt is asked.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction

from django_logic import wakeup
from django_logic.background import attempt, claim, ending
from django_logic.background.exceptions import Cancelled
from django_logic.background.models import Cancellation, State, TransitionMessage
from django_logic.background.progress import Attempt, cancelled_by
from django_logic.background.runner import run_rows_after_commit
from django_logic.background.settle import Ended, Outcome
from django_logic.call import identify, storable
from django_logic.conf import sync_mode
from django_logic.exceptions import TransitionNotAllowed
from django_logic.reads import Reading, Shape, read_row
from django_logic.states import plain
from django_logic.subject import alias_of, instance_key, remember_state

__all__ = ["cancel", "cancel_message"]


def cancel(process: Any, *, user: Any = None, actor: Any = None, reason: str = "") -> bool:
    """
    Cancel the open background transition of an object.

    Shape: True when it ended now, False when an attempt runs, or somebody holds the object: then a worker ends it.
    Raises: TransitionNotAllowed when none is open.
    """
    column, instance = process.column, process.instance
    key, alias = instance_key(column, instance), alias_of(instance)
    rows = TransitionMessage.objects.using(alias).open().transitions().about(column, key)
    pk = rows.values_list("pk", flat=True).first()
    if pk is None:
        raise TransitionNotAllowed(
            f"{type(process).__name__}.cancel_background refused for {column.model_name} {key}: no background work is"
            " open. Look at what it did: the history, or manage.py dl_transitions."
        )
    has_ended = cancel_message(pk, using=alias, user=user, actor=actor, reason=reason)
    row = read_row(alias, Reading(Shape(type(instance), "pk", (column.field.attname,)), instance.pk))
    if row is not None:
        remember_state(column, instance, plain(row[0]))
    return has_ended


def cancel_message(
    message_id: int, *, using: str = "default", user: Any = None, actor: Any = None, reason: str = ""
) -> bool:
    """
    Cancel one open row, also one that follows a transition.

    Shape: True when it ended now, False when an attempt runs and was asked to stop.
    Raises: TransitionNotAllowed when the row is gone or has ended.
    """
    actor_id, actor_label = identify(user if actor is None else actor)
    asked: dict[str, Any] = {"actor_id": actor_id, "actor_label": actor_label, "reason": storable(reason)}
    held = end_now(message_id, using, cancelled_by(actor_label, asked["reason"]))
    if held is not None:
        follow(held, using)
        return True
    if not TransitionMessage.objects.using(using).open().filter(pk=message_id).exists():
        raise TransitionNotAllowed(f"Row {message_id} is not open, so there is nothing to cancel.")
    Cancellation.objects.using(using).get_or_create(message_id=message_id, defaults=asked)
    return False


def end_now(message_id: int, alias: str, error: Cancelled) -> tuple[Attempt, Outcome] | None:
    """
    End a row that nobody works on; the claim is no attempt. None where somebody holds the row or its object.

    Transaction: one for the claim and the end, so that nobody comes between them.
    """
    with transaction.atomic(using=alias):
        message = claim.take(alias, message_id)
        if message is None:
            return None
        message.attempts_started = max(message.errors_count, message.attempts_started - 1)
        held = Attempt(message, alias)
        outcome = ending.give_up(held, error, State.CANCELLED, is_measured=False)
    return None if outcome.ended is Ended.RETRY else (held, outcome)


def follow(held: tuple[Attempt, Outcome], alias: str) -> None:
    """
    Tell how the row ended, and see to the rows of its failure callbacks.
    """
    ended, outcome = held
    attempt.tell(ended, outcome)
    if sync_mode():
        run_rows_after_commit(alias, ended.message.transition_id)
    else:
        wakeup.notify_after_commit(wakeup.WORK, alias, ended.message.queue_name)
