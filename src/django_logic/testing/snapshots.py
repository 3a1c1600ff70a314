"""
Carrying an object and its newest row from one database to another, as to replay a stuck one in a test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from django.apps import apps
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models, transaction

from django_logic.subject import alias_of
from django_logic.testing.placing import unguarded
from django_logic.testing.reading import newest_row, rows_of

__all__ = ["from_snapshot", "snapshot"]


def snapshot(instance: models.Model, *, state_field: str = "status", process_name: str = "process") -> dict[str, Any]:
    """
    Describe an object, as the database has it, and its newest row of background work as plain data.

    Shape: ``model``, ``pk``, ``state``, ``process``, ``fields`` and ``row``, all of them JSON.
    Raises: TypeError for a value that JSON can't hold, DoesNotExist when the object is gone.
    """
    label = instance._meta.label
    stored = type(instance)._base_manager.using(alias_of(instance)).get(pk=instance.pk)
    row = newest_row(stored, process_name)
    return {
        "model": label,
        "pk": plain_value(label, stored._meta.pk, stored.pk),
        "state": plain_value(label, stored._meta.get_field(state_field), getattr(stored, state_field)),
        "process": process_name,
        "fields": plain_values(stored),
        "row": None if row is None else plain_values(row),
    }


def plain_values(instance: models.Model) -> dict[str, Any]:
    """
    Return the values of all columns as JSON has them.
    """
    return {
        entry.attname: plain_value(instance._meta.label, entry, getattr(instance, entry.attname))
        for entry in instance._meta.concrete_fields
    }


def plain_value(label: str, entry: Any, value: Any) -> Any:
    """
    Return a column's value as JSON has it.

    Raises: TypeError for one that would come back as another.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(entry, models.JSONField):
        return json.loads(json.dumps(value, cls=DjangoJSONEncoder))
    text = entry.value_to_string(SimpleNamespace(**{entry.attname: value}))
    try:
        is_faithful = entry.to_python(text) == value
    except (ValidationError, ValueError, TypeError):
        is_faithful = False
    if not is_faithful:
        raise TypeError(f"{label}.{entry.name} holds a {type(value).__name__}, which a snapshot can't keep.")
    return text


def from_snapshot(
    data: Mapping[str, Any] | str | Path, *, model: type[models.Model] | None = None, using: str = "default"
) -> Any:
    """
    Insert a described object with its key, and its row in the place of all rows it has; return it freshly loaded.

    ``data`` is what `snapshot` made, or the path of a JSON file of it. An object with that key must not exist.
    No guard, no `TransitionConstraint` and no signal handler that honours ``raw`` stands in its way.
    Transaction: opens one. Raises: ValueError when it is of another model, or has a column this code does not know.
    """
    known = json.loads(Path(data).read_text(encoding="utf-8")) if isinstance(data, (str, Path)) else data
    described: Any = apps.get_model(known["model"])
    if model is not None and model._meta.label != described._meta.label:
        raise ValueError(f"The snapshot is of {described._meta.label}; expected {model._meta.label}.")
    values = python_values(described, known["fields"])
    lineage = [*reversed(described._meta.get_parent_list()), described]
    with unguarded(*lineage, using=using), transaction.atomic(using=using):
        for each in lineage:  # raw, so that no field is set anew; a raw child does not save its parents
            own = {entry.attname for entry in each._meta.concrete_fields}
            part = each(**{name: value for name, value in values.items() if name in own})
            part.save_base(raw=True, force_insert=True, using=using)
        instance = described._base_manager.using(using).get(pk=part.pk)
        rows = rows_of(instance, known["process"])
        if rows is not None:
            rows.delete()
            if known["row"] is not None:
                values = python_values(rows.model, known["row"])
                rows.model(**{**values, "id": None}).save(
                    force_insert=True, using=using
                )  # the number may be taken here
    return instance


def python_values(model: type[models.Model], values: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return values as Python has them.
    """
    columns = {entry.attname: entry for entry in model._meta.concrete_fields}
    if unknown := set(values) - set(columns):
        raise ValueError(f"{model._meta.label} has no column {sorted(unknown)} here.")
    try:
        return {
            name: value if isinstance(columns[name], models.JSONField) else columns[name].to_python(value)
            for name, value in values.items()
        }
    except (ValidationError, FieldDoesNotExist) as error:
        raise ValueError(f"The snapshot of {model._meta.label} can't be read: {error}") from error
