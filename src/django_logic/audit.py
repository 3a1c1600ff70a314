"""
Who asked for what and how it ended, written as far as ``DJANGO_LOGIC["AUDIT"]`` says.

A move's entry is a row of the move itself. Every other outcome is written afterwards, in the caller's transaction
where one is open: when that rolls back, the entry goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.db import connections
from django.utils import timezone

from django_logic import conf, extension, hooks, signals
from django_logic.call import Call, storable
from django_logic.exceptions import TransitionNotAllowed
from django_logic.moves import Move, history_values, plan
from django_logic.rows import SEQUENCE, Row
from django_logic.states import as_text
from django_logic.subject import state_of

__all__ = ["connect"]

#: Stands for "the state the object is in".
UNMOVED: Any = object()


def connect() -> None:
    """
    Listen to the engine, and add an entry to every move.
    """
    extension.register_contributor(entry_of_move, is_active=lambda: conf.audit_level() == "all")
    extension.observe(signals.transition_finished, write_finished)
    extension.observe(signals.transition_failed, write_failed)
    extension.observe(signals.transition_refused, write_refused)


def entry_of_move(move: Move) -> Iterator[Row]:
    """
    Contribute the entry of a success move; how a failed one ended is told once, by `write_failed`.
    """
    if move.is_success and move.is_write:
        values = {**history_values(move), "sequence": SEQUENCE, "outcome": "moved", "code": "", "detail": ""}
        yield Row(model=apps.get_model("django_logic", "AuditEntry"), values=values)


def write_finished(call: Call, moved: bool, move: Move | None) -> None:
    """
    Write a duplicate or an action.
    """
    if move is None and conf.audit_level() == "all":
        if moved:
            write(call, "done", "", "")
        else:
            write(call, "duplicate", "duplicate", "", to_state=state_of(call.column, call.instance))


def write_failed(call: Call, exception: Exception, move: Move | None) -> None:
    """
    Write a failure.
    """
    if conf.audit_level() != "off":
        state = move.expected if move else state_of(call.column, call.instance)
        ended = move.new if move else None
        write(call, "failed", "", f"{type(exception).__name__}: {exception}", from_state=state, to_state=ended)


def write_refused(call: Call, exception: TransitionNotAllowed) -> None:
    """
    Write a refusal with its code.
    """
    if conf.audit_level() != "off":
        write(call, "refused", str(exception.reason or ""), str(exception), to_state=exception.target)


def write(call: Call, outcome: str, code: str, detail: str, *, from_state: Any = UNMOVED, to_state: Any = None) -> None:
    """
    Insert one entry; a broken transaction of the caller can't take it any more, which is logged.
    """
    if connections[call.alias].needs_rollback:
        hooks.logger.warning("%s of %s: no audit entry, the transaction is broken", call.label, call.subject)
        return
    state = state_of(call.column, call.instance) if from_state is UNMOVED else from_state
    shown = plan(call, state, to_state, action=call.action or f"to_{call.target}")
    values = {**history_values(shown), "occurred_at": timezone.now(), "to_state": as_text(to_state)}
    entries = apps.get_model("django_logic", "AuditEntry")

    def insert() -> None:
        entries.objects.using(call.alias).bulk_create(
            [entries(**values, outcome=outcome, code=code, detail=storable(detail)[:10_000])]
        )

    hooks.run_apart(call, "audit", insert)
