"""
What a call is about: one state column of one row, and the names it goes by.

History belongs to the model that declares the column, so proxies and children of a concrete model share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.db import models, router
from django.db.models import signals

from django_logic.states import plain

__all__ = [
    "BIRTH_RECORDER",
    "Column",
    "alias_of",
    "column_of",
    "describe",
    "instance_key",
    "is_loaded",
    "owner_pk",
    "recall",
    "remember_state",
    "state_of",
    "times_of",
]

#: The dispatch_uid of the receiver that records births; it is ours, so it is no reason to go through save().
BIRTH_RECORDER = "django_logic.record_initial_state"


@dataclass(frozen=True, slots=True)
class Column:
    """
    Describe one state column as seen from one model class, for one process.
    """

    model: type[models.Model]
    owner: type[models.Model]
    field: models.Field[Any, Any]
    process_name: str
    app_label: str
    model_name: str
    auto_now: tuple[models.Field[Any, Any], ...]
    overrides_save: bool

    @property
    def name(self) -> str:
        """
        Return the field's name.
        """
        return self.field.name

    def listens(self) -> bool:
        """
        Tell whether the write has to go through save(), because the model or a receiver wants to know.
        """
        return self.overrides_save or any(
            signal.has_listeners(self.model) and has_foreign_receiver(signal, self.model)
            for signal in (signals.pre_save, signals.post_save)
        )


@cache
def column_of(model: type[models.Model], field_name: str, process_name: str) -> Column:
    """
    Return the column a process moves on this model.
    """
    options: Any = model._meta
    field = options.get_field(field_name)
    owner = field.model._meta.concrete_model
    moving = tuple(entry for entry in options.concrete_fields if getattr(entry, "auto_now", False))
    return Column(
        model=model,
        owner=owner,
        field=field,
        process_name=process_name,
        app_label=owner._meta.app_label,
        model_name=str(owner._meta.model_name),
        auto_now=moving,
        overrides_save=saves_its_own_way(model)
        or any(entry.model._meta.concrete_model is not owner for entry in moving),
    )


def saves_its_own_way(model: type[models.Model]) -> bool:
    """
    Tell whether the class replaces a step of Django's save().
    """
    return any(
        getattr(model, step) is not getattr(models.Model, step)
        for step in ("save", "save_base", "_save_table", "_do_update")
    )


def has_foreign_receiver(signal: Any, model: type[models.Model]) -> bool:
    """
    Tell whether a receiver other than our own recorder of births would get this model's signal.
    """
    senders = (id(None), id(model))
    return any(key[0] != BIRTH_RECORDER and key[1] in senders for key, *_rest in signal.receivers)


def instance_key(column: Column, instance: models.Model) -> str:
    """
    Return the text that stands for the object in history, gates and events.
    """
    return str(owner_pk(column, instance))


def owner_pk(column: Column, instance: models.Model) -> Any:
    """
    Return the primary key of the row that holds the column; a child's own key may be another one.
    """
    key = column.owner._meta.pk
    value = getattr(instance, key.attname)
    # A key that was assigned as text may be spelt otherwise than the one that is loaded.
    return key.to_python(value) if isinstance(value, str) else value


def alias_of(instance: models.Model) -> str:
    """
    Return the database that writes of this instance go to.
    """
    return router.db_for_write(type(instance), instance=instance)


def is_loaded(column: Column, instance: models.Model) -> bool:
    """
    Tell whether the instance holds its state in memory, so that reading it costs no query.
    """
    return column.field.attname in instance.__dict__


def state_of(column: Column, instance: models.Model) -> Any:
    """
    Return the state the instance holds in memory, as a plain value.
    """
    return plain(getattr(instance, column.field.attname))


def remember_state(column: Column, instance: models.Model, state: Any) -> None:
    """
    Make the instance in memory say what the database says; nothing is written.
    """
    instance.__dict__[column.field.attname] = column.field.to_python(state)


def times_of(column: Column, instance: models.Model) -> dict[str, Any]:
    """
    Return the loaded ``auto_now`` values in memory, to be brought back when a write does not stand.
    """
    held = instance.__dict__
    return {entry.attname: held[entry.attname] for entry in column.auto_now if entry.attname in held}


def recall(instance: models.Model, values: Mapping[str, Any]) -> None:
    """
    Put values back into memory; nothing is written.
    """
    instance.__dict__.update(values)


def describe(column: Column, instance: models.Model) -> str:
    """
    Name the object for a message: model and key, never its text, which may read the database or hold secrets.
    """
    return f"{column.model._meta.object_name} {instance_key(column, instance)}"
