"""
Putting an object into a state past everything that would refuse it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from django.db import models

from django_logic.constraints import TransitionConstraint, suspended
from django_logic.subject import alias_of
from django_logic.testing.reading import process_of

__all__ = ["place", "put", "unguarded"]


def place(instance: models.Model, process_name: str, state: Any) -> None:
    """
    Write a state without a move: no guard, no hook, no history, and no `TransitionConstraint`.

    Transaction: joins an open one, except on MySQL where a constraint has to be suspended, which raises there.
    """
    column = process_of(instance, process_name).column
    with unguarded(column.owner, using=alias_of(instance)):
        put(instance, column.name, state)
    instance.refresh_from_db()


def unguarded(*owners: type[models.Model], using: str) -> AbstractContextManager[None]:
    """
    Suspend the `TransitionConstraint` of those models that have one.
    """
    guarded = [
        owner for owner in owners if any(isinstance(entry, TransitionConstraint) for entry in owner._meta.constraints)
    ]
    return suspended(*guarded, using=using) if guarded else nullcontext()


def put(instance: models.Model, field: str, state: Any) -> None:
    """
    Write a state into the row.
    """
    type(instance)._base_manager.using(alias_of(instance)).filter(pk=instance.pk).update(**{field: state})
