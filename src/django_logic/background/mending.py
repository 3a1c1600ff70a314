"""
What an operator does to a row that does not move: make it due now, or give it fresh attempts.

Both wake the workers and run no hook here. Cancelling is in `django_logic.background.cancel`.
"""

from __future__ import annotations

from typing import Any

from django.db import connections, transaction

from django_logic import wakeup
from django_logic.background import restore, settle
from django_logic.background.exceptions import VanishedReference
from django_logic.background.explain import reading
from django_logic.background.explain.reading import Found, Standing, unheld
from django_logic.background.models import Kind, State, TransitionMessage
from django_logic.background.restore import InstanceGone, Unknown
from django_logic.clock import FromNow
from django_logic.exceptions import TransitionNotAllowed
from django_logic.rows import Change

__all__ = ["CannotMend", "retry", "send"]

#: The ends after which a call may be made again.
FAILED_ENDS = (State.FAILED, State.CANCELLED, State.UNRESTORABLE)


class CannotMend(Exception):
    """
    Say why a row can't be sent or retried, in one line with what to do instead.
    """


def send(message_id: int, *, using: str = "default") -> None:
    """
    Make a waiting row due now: ends a pause, a delay, or the lease of an attempt that died, and wakes the workers.

    Raises: CannotMend for a row that is unknown, has ended, runs, or has spent every attempt.
    """
    with transaction.atomic(using=using):
        found = open_row(message_id, using)
        if unheld(found) is Standing.SPENT:
            raise CannotMend(
                f"Row {message_id} has spent every attempt. Give it fresh ones: manage.py dl_transitions --retry"
                f" {message_id}"
            )
        if found.message.run_at > found.now:
            change(found, using, run_at=FromNow())
        for row in behind(found, using):
            change(row, using, run_at=FromNow())
        wakeup.notify_after_commit(wakeup.WORK, using, found.message.queue_name)


def retry(message_id: int, *, using: str = "default") -> int:
    """
    Give a row fresh attempts: a spent one as it is; for a failed one its call is made again, as the same user.

    Shape: the id of the row that workers will run, which is a new one where the old one has ended.
    Raises: CannotMend for any other row, and where the object's state or a guard refuses the call.
    """
    message = TransitionMessage.objects.using(using).filter(pk=message_id).first()
    if message is not None and message.is_completed:
        return call_again(message, using)
    with transaction.atomic(using=using):
        found = open_row(message_id, using)
        if unheld(found) is not Standing.SPENT:
            raise CannotMend(
                f"Row {message_id} has attempts left. Make it due now: manage.py dl_transitions --send {message_id}"
            )
        change(found, using, run_at=FromNow(), attempts_started=0, errors_count=0)
        wakeup.notify_after_commit(wakeup.WORK, using, found.message.queue_name)
        return message_id


def open_row(message_id: int, alias: str) -> Found:
    """
    Lock an open row without waiting for whoever holds it, and read how it stands.

    Transaction: needs the caller's, and holds the row's lock on return. Raises: CannotMend.
    """
    rows = TransitionMessage.objects.using(alias).filter(pk=message_id)
    lockable = rows.only("is_completed", "outcome")
    if connections[alias].features.has_select_for_update_skip_locked:
        lockable = lockable.select_for_update(skip_locked=True)
    message = lockable.first()
    if message is None and rows.exists():
        raise CannotMend(f"Row {message_id} is held: an attempt runs. See: manage.py dl_transitions.")
    if message is None:
        raise CannotMend(f"There is no row {message_id}. See which there are: manage.py dl_transitions.")
    if message.is_completed:
        raise CannotMend(f"Row {message_id} has ended: {message.outcome}. Nothing waits.")
    (found,) = reading.rows(alias, pks=[message_id])
    return found


def behind(found: Found, alias: str) -> list[Found]:
    """
    Return the rows that were paused together with a durable one, since they wait for its end.
    """
    message = found.message
    if message.kind == Kind.TRANSITION:
        return []
    rows = TransitionMessage.objects.using(alias).durable_beside(message)
    paused = rows.filter(errors_count=0, id__gt=message.pk, run_at__gt=FromNow())
    pks = list(paused.values_list("pk", flat=True))
    return [row for row in reading.rows(alias, pks=pks) if row.standing is Standing.BEHIND] if pks else []


def change(found: Found, alias: str, **values: Any) -> None:
    """
    Write values on a row and take it from the attempt it was claimed by, whose writes are fenced off from then on.
    """
    expected = {"is_completed": False, "claim_token": found.message.claim_token}
    values |= {"claim_token": None, "modified": FromNow()}
    settle.write(Change(model=TransitionMessage, pk=found.message.pk, expected=expected, values=values), alias)


def call_again(message: TransitionMessage, alias: str) -> int:
    """
    Make the call of a row that has failed once more; return the new row.

    Guards judge it as they would judge anybody's; it descends from the call that failed. Raises: CannotMend.
    """
    if message.kind != Kind.TRANSITION or message.outcome not in FAILED_ENDS:
        raise CannotMend(f"Row {message.pk} has ended: {message.outcome}. Only a failed transition can be retried.")
    try:
        call = restore.restore(message, alias).call
        root: Any = call.tree.root
        process = root(call.instance, message.field_name)
        lineage = {"root_id": message.root_id, "transition_id": message.transition_id}
        people = {"user": call.user, "actor": call.actor, "reason": call.reason}
        is_accepted = getattr(process, message.transition_name)(**call.keywords, **people, **lineage)
    except (Unknown, InstanceGone, VanishedReference, ValueError, TransitionNotAllowed) as refusal:
        raise CannotMend(f"Row {message.pk} can't be retried: {refusal}") from refusal
    if not is_accepted:
        raise CannotMend(f"Row {message.pk} can't be retried: {message.subject} is where it would go already.")
    rows = TransitionMessage.objects.using(alias).transitions().filter(parent_id=message.transition_id)
    return rows.order_by("-id").values_list("pk", flat=True)[:1].get()
