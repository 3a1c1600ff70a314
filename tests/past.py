"""
Give objects a past: history rows at chosen times, as the writer would have left them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from django.db import models

from django_logic.models import StatusChange
from django_logic.states import as_text
from django_logic.subject import column_of

DAWN = datetime(2024, 1, 1, tzinfo=UTC)


def row(instance: Any, sequence: int, start: Any, end: Any, at: float | datetime, **values: Any) -> StatusChange:
    """
    Make one history row, unsaved; `at` is a moment, or seconds after `DAWN`.
    """
    process = values.pop("process", "process")
    field = values.pop("field", "status" if hasattr(instance, "status") else "state")
    column = column_of(type(instance), field, process)
    ids = uuid4()
    return StatusChange(
        app_label=column.app_label,
        model_name=column.model_name,
        instance_id=str(getattr(instance, column.owner._meta.pk.attname)),
        process_name=process,
        field_name=field,
        action=values.pop("action", "go"),
        from_state=as_text(start),
        to_state=as_text(end),
        occurred_at=at if isinstance(at, datetime) else DAWN + timedelta(seconds=at),
        transition_id=ids,
        root_id=ids,
        sequence=sequence,
        **values,
    )


def live(instance: Any, *moves: tuple[Any, float | datetime], using: str = "default", **values: Any) -> Any:
    """
    Let an object have made these moves, each a state and when; its column ends in the last one.
    """
    field = values.get("field", "status" if hasattr(instance, "status") else "state")
    state = getattr(instance, field)
    rows = []
    for sequence, (end, at) in enumerate(moves, start=1):
        rows.append(row(instance, sequence, state, end, at, **values))
        state = end
    StatusChange.objects.using(using).bulk_create(rows)
    force(instance, state, field=field, using=using)
    return instance


def force(instance: models.Model, state: Any, *, field: str | None = None, using: str = "default") -> None:
    """
    Set a column past the library.
    """
    name = field or ("status" if hasattr(instance, "status") else "state")
    type(instance)._base_manager.using(using).filter(pk=instance.pk).update(**{name: state})
    setattr(instance, name, state)
