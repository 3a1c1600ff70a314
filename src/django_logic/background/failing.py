"""
The failure path of a row: failed_state, its end, and the failure callbacks' rows, as far as each is possible.
"""

from __future__ import annotations

from dataclasses import replace

from django.db import DatabaseError, transaction

from django_logic import hooks, locks, writer
from django_logic.background import durable, settle
from django_logic.background.exceptions import Cancelled
from django_logic.background.models import Kind, TransitionMessage
from django_logic.background.progress import Attempt, guard
from django_logic.background.restore import InstanceGone, Restored, Unknown, restore
from django_logic.background.settle import told
from django_logic.moves import MoveLost, plan
from django_logic.rows import Change, Row

__all__ = ["write_failure"]


def write_failure(attempt: Attempt, error: Exception, change: Change) -> None:
    """
    Write what says that the work failed; what can't be restored any more ends without a state.

    Transaction: the caller's. A refused failed_state is noted on the row, which ends all the same.
    Raises: Superseded, MoveLost when the object went another way.
    """
    message, alias = attempt.message, attempt.alias
    try:
        restored = attempt.restored = attempt.carry_over(restore_for_failure(message, alias))
    except DatabaseError:
        raise
    except Exception as gone:  # whatever importing a broken module raises, too
        settle.write(replace(change, values={**change.values, "failure_side_effect_error": told(gone)}), alias)
        return
    if message.kind != Kind.TRANSITION:
        settle.write(change, alias)
        return
    guard(restored)
    rows = durable.rows_after_failure(restored.message, restored.call, restored.candidate, error)
    transition = restored.candidate.transition
    refused: Exception | None = None
    if transition.failed_state is not None and transition.failed_state != restored.state:
        refused = write_failed_state(attempt, restored, error, change, rows)
        if refused is None:
            return
    note = {} if refused is None else {"failure_side_effect_error": told(refused)}
    settle.write(replace(change, values={**change.values, **note}), alias)
    writer.insert_rows(rows, alias)


def restore_for_failure(message: TransitionMessage, alias: str) -> Restored:
    """
    Restore a row for its failure path, where keywords that can't be decoded must not stand in the way.
    """
    try:
        return restore(message, alias)
    except (Unknown, InstanceGone, DatabaseError):
        raise
    except Exception as error:
        hooks.logger.warning("%s: its keywords can't be read, failure callbacks go without: %r", message, error)
        bare = replace_kwargs(message)
        return restore(bare, alias)


def replace_kwargs(message: TransitionMessage) -> TransitionMessage:
    """
    Return a copy of a row without its keywords.
    """
    values = [
        {} if entry.attname == "kwargs" else getattr(message, entry.attname) for entry in message._meta.concrete_fields
    ]
    names = [entry.attname for entry in message._meta.concrete_fields]
    return TransitionMessage.from_db(str(message._state.db), names, values)


def write_failed_state(
    attempt: Attempt, restored: Restored, error: Exception, change: Change, rows: tuple[Row, ...]
) -> Exception | None:
    """
    Write failed_state with the end of the row; return what refused it, None when it is written.
    """
    transition = restored.candidate.transition
    move = plan(restored.call, restored.state, transition.failed_state, action=transition.action_name, is_success=False)
    if isinstance(error, Cancelled):
        asked = {"cancelled_by": error.actor_label, "cancel_reason": error.reason}
        move = replace(move, metadata={**move.metadata, **asked})
    move = replace(move, rows=rows, change=change)
    try:
        with transaction.atomic(using=attempt.alias):
            writer.apply(move)
    except MoveLost:
        raise
    except Exception as refused:
        if locks.is_transient(refused):
            raise
        hooks.logger.exception("%s: failed_state %r was not written", attempt.message, transition.failed_state)
        return refused
    attempt.move = move
    return None
