"""
Reading what the database says now: an object's state, its history, its newest row of background work.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import models

from django_logic import Process
from django_logic.subject import alias_of, instance_key

__all__ = ["fresh_state", "newest_row", "process_of", "row_text", "rows_of", "topics_of"]

#: What a failure tells of a row of background work.
KEY_FIELDS = (
    *("transition_name", "kind", "queue_name", "run_at", "attempts_started", "errors_count"),
    *("is_completed", "outcome", "last_error_message"),
)


def process_of(instance: models.Model, process_name: str) -> Process:
    """
    Return an object's process.

    Raises: AttributeError when its model is not bound under that name.
    """
    process: Process = getattr(instance, process_name)
    return process


def fresh_state(instance: models.Model, process_name: str) -> Any:
    """
    Return the state in the database; None when the object is gone.
    """
    name = process_of(instance, process_name).column.field.attname
    rows = type(instance)._base_manager.using(alias_of(instance)).filter(pk=instance.pk)
    return rows.values_list(name, flat=True).first()


def rows_of(instance: models.Model, process_name: str) -> Any:
    """
    Return the rows of background work of an object in one process, the oldest first; None where the app is missing.
    """
    if not apps.is_installed("django_logic.background"):
        return None
    model: Any = apps.get_model("django_logic_background", "TransitionMessage")
    return model.objects.using(alias_of(instance)).for_instance(instance, process_name).order_by("pk")


def newest_row(instance: models.Model, process_name: str) -> Any:
    """
    Return the newest row of a background transition of an object in one process, None when there is none.
    """
    rows = rows_of(instance, process_name)
    return None if rows is None else rows.transitions().last()


def topics_of(instance: models.Model, process_name: str) -> list[str]:
    """
    Return the topics of all events about an object, the oldest first.

    Raises: ImproperlyConfigured where the app is missing.
    """
    if not apps.is_installed("django_logic.outbox"):
        raise ImproperlyConfigured("Nothing writes events here. Add 'django_logic.outbox' to INSTALLED_APPS.")
    column = process_of(instance, process_name).column
    model: Any = apps.get_model("django_logic_outbox", "OutboxMessage")
    about = {"aggregate": f"{column.app_label}.{column.model_name}", "key": instance_key(column, instance)}
    messages = model.objects.using(alias_of(instance)).filter(**about)
    return list(messages.order_by("occurred_at", "sequence").values_list("topic", flat=True))


def row_text(instance: models.Model, process_name: str) -> str:
    """
    Tell the newest row by its key fields.
    """
    row = newest_row(instance, process_name)
    if row is None:
        return "no row of background work"
    return f"row {row.pk}: " + ", ".join(f"{name}={getattr(row, name)!r}" for name in KEY_FIELDS)
