"""
A row of background work as a test needs it: open, aged, with so many errors.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.db import models

from django_logic import Process, conf
from django_logic.clock import FromNow
from django_logic.subject import alias_of
from django_logic.testing.reading import process_of, rows_of
from django_logic.tree import Candidate, dotted

__all__ = ["open_transition_message"]


def open_transition_message(
    instance: models.Model,
    process_name: str = "process",
    transition_name: str = "transition",
    *,
    field_name: str = "",
    queue_name: str | None = None,
    started_minutes_ago: float | None = None,
    errors_count: int = 0,
) -> Any:
    """
    Save a row of an object that has not ended, as of a call whose attempt has begun or failed so often; return it.

    Units: minutes. The names need not be declared: a row of code that is gone is a case to test.
    Raises: IntegrityError when one is open already, where the database can see to that.
    """
    process = process_of(instance, process_name)
    named = [entry for entry in process.tree.by_action.get(transition_name, ()) if entry.transition.is_background]
    began, ids = FromNow(-timedelta(minutes=started_minutes_ago or 0).total_seconds()), uuid4()
    row = rows_of(instance, process_name).model(
        **names_of(process, transition_name),
        **(declared_of(named[0]) if named else {}),
        transition_id=ids,
        root_id=ids,
        created=began,
        modified=began,
        run_at=began,
        started_at=began if started_minutes_ago is not None else None,
        attempts_started=errors_count,
        errors_count=errors_count,
        last_error_dt=began if errors_count else None,
    )
    row.field_name = field_name or row.field_name
    row.queue_name = queue_name or row.queue_name or conf.default_queue()
    row.save(force_insert=True, using=alias_of(instance))
    row.refresh_from_db()
    return row


def names_of(process: Process, transition_name: str) -> dict[str, Any]:
    """
    Return what a row says of its object and of what was called.
    """
    column, instance = process.column, process.instance
    return {
        "app_label": column.app_label,
        "model_name": column.model_name,
        "instance_id": str(instance.pk),
        "process_name": column.process_name,
        "field_name": process.field_name,
        "transition_name": transition_name,
        "model_class": type(instance)._meta.label,
        "process_class": dotted(type(process)),
    }


def declared_of(candidate: Candidate) -> dict[str, Any]:
    """
    Return what a row takes over from its declaration.
    """
    declaration: Any = candidate.transition
    return {
        "owning_process_class": dotted(candidate.owner),
        "queue_name": declaration.queue_name,
        "max_errors": declaration.max_errors,
        "timeout_seconds": declaration.timeout,
        "priority": declaration.priority,
    }
