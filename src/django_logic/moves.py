"""
What a move will write, computed without the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import models
from django.utils import timezone

from django_logic.call import Call
from django_logic.rows import Change, Row
from django_logic.states import as_text, plain
from django_logic.subject import Column, instance_key, owner_pk

__all__ = ["HISTORY_COLUMNS", "ChangeLost", "Member", "Move", "MoveLost", "SequenceTaken", "history_values", "plan"]

#: The columns of a history row that a move fills, beside its sequence.
HISTORY_COLUMNS = (
    "app_label",
    "model_name",
    "instance_id",
    "process_name",
    "field_name",
    "action",
    "from_state",
    "to_state",
    "actor_id",
    "actor_label",
    "reason",
    "occurred_at",
    "transition_id",
    "root_id",
    "parent_id",
    "metadata",
)


class MoveLost(Exception):
    """
    The row was not in the expected state any more; nothing was written.
    """


class ChangeLost(Exception):
    """
    The row that had to change with the move was not as expected any more; nothing was written.
    """


class SequenceTaken(Exception):
    """
    Another move of the object slipped in while the statement waited; nothing was written.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """
    Describe one write of a state column and everything that has to agree with it.
    """

    call: Call
    column: Column
    #: None when a whole set moves at once.
    instance: models.Model | None
    pk: Any
    key: str
    alias: str
    action: str
    expected: Any
    new: Any
    #: The declaration's ``event=``; None where the write is not the success move.
    event: Any
    is_success: bool
    #: False for an action: its work is told, and the state stays.
    is_write: bool
    actor_id: str
    actor_label: str
    reason: str
    occurred_at: datetime
    transition_id: UUID
    root_id: UUID
    parent_id: UUID | None
    metadata: Mapping[str, Any]
    #: Rows that are inserted with this move, beside those that contributors add.
    rows: tuple[Row, ...] = ()
    #: A row that changes with this move; where it can't, nothing is written.
    change: Change | None = None


class Member(NamedTuple):
    """
    Name one object of a set that moved together: its key in its table, its key in history, its own ids.
    """

    pk: Any
    key: str
    transition_id: UUID
    sequence: int


def plan(
    call: Call,
    state: Any,
    new: Any,
    *,
    action: str,
    event: Any = None,
    is_success: bool = True,
    is_write: bool = True,
) -> Move:
    """
    Compute the move a call makes from a state: pure, so previews and tests need no database.

    ``context["metadata"]``, a dict hooks may fill, becomes the record's metadata.
    """
    return Move(
        call=call,
        column=call.column,
        instance=call.instance,
        pk=owner_pk(call.column, call.instance),
        key=instance_key(call.column, call.instance),
        alias=call.alias,
        action=action,
        expected=state,
        new=plain(new),
        event=event,
        is_success=is_success,
        is_write=is_write,
        actor_id=call.actor_id,
        actor_label=call.actor_label,
        reason=call.reason,
        occurred_at=timezone.now(),
        transition_id=call.transition_id,
        root_id=call.root_id,
        parent_id=call.parent_id,
        metadata=call.context.get("metadata", {}),
    )


def history_values(move: Move) -> dict[str, Any]:
    """
    Return the history row of a move, its sequence left out.
    """
    return {
        "app_label": move.column.app_label,
        "model_name": move.column.model_name,
        "instance_id": move.key,
        "process_name": move.column.process_name,
        "field_name": move.column.field.name,
        "action": move.action,
        "from_state": as_text(move.expected),
        "to_state": as_text(move.new),
        "actor_id": move.actor_id,
        "actor_label": move.actor_label,
        "reason": move.reason,
        "occurred_at": move.occurred_at,
        "transition_id": move.transition_id,
        "root_id": move.root_id,
        "parent_id": move.parent_id,
        "metadata": move.metadata,
    }
