"""
Recording births: a first history row from nothing to the state an object is created in, where a process asks for it.

Listens to ``post_save``; ``bulk_create`` and raw SQL send none, and fixtures bring their own history.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.signals import class_prepared, post_save

from django_logic.call import make_call
from django_logic.moves import plan
from django_logic.subject import BIRTH_RECORDER, column_of, state_of
from django_logic.tree import tree_of
from django_logic.writer import record_birth

__all__ = ["forget", "watch"]

#: What is recorded at a birth instead of the name of an action.
ACTION = "created"

_watched: dict[type[models.Model], list[tuple[Any, str]]] = {}


def watch(model: type[models.Model], process_class: Any, field_name: str) -> None:
    """
    Record the births of a model and of what inherits from it.
    """
    _watched.setdefault(model, []).append((process_class, field_name))
    for heir in (model, *heirs_of(model)):
        listen(heir)


def forget(model: type[models.Model], process_class: Any) -> None:
    """
    Record births of a model for this process no longer; unknown ones change nothing.
    """
    _watched[model] = [entry for entry in _watched.get(model, []) if entry[0] is not process_class]


def heirs_of(model: type[models.Model]) -> list[type[models.Model]]:
    """
    Return every subclass of a model, however deep.
    """
    return [heir for child in model.__subclasses__() for heir in (child, *heirs_of(child))]


def listen(model: type[models.Model]) -> None:
    """
    Connect the recorder to one class; again changes nothing.
    """
    post_save.connect(on_saved, sender=model, dispatch_uid=BIRTH_RECORDER)


def listen_to_heir(sender: type[models.Model], **_signal: Any) -> None:
    """
    Connect the recorder to a class that is made after its parent was bound.
    """
    if any(base in _watched for base in sender.__mro__[1:]):
        listen(sender)


class_prepared.connect(listen_to_heir, dispatch_uid=BIRTH_RECORDER)


def on_saved(sender: type[models.Model], instance: models.Model, created: bool, raw: bool, **signal: Any) -> None:
    """
    Record a birth.
    """
    if not created or raw:
        return
    for base in sender.__mro__:
        for process_class, field_name in _watched.get(base, ()):
            column = column_of(sender, field_name, process_class.process_name)
            call = make_call(column=column, tree=tree_of(process_class), instance=instance, keywords={}, action=ACTION)
            record_birth(plan(call, None, state_of(column, instance), action=ACTION))
