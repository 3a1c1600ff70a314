"""
Bind throw-away processes to test models, and look at what a call left behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import models

from django_logic import Process, ProcessManager, Transition
from django_logic.models import StatusChange
from tests.app.models import Ticket


@contextmanager
def hooked(
    *transitions: Transition, model: type[models.Model] = Ticket, field: str = "state", **attributes: Any
) -> Iterator[type[Process]]:
    """
    Bind a process of these transitions as ``instance.probe`` within the block.
    """
    body = {"__module__": __name__, "process_name": "probe", "transitions": list(transitions), **attributes}
    process_class = type("ProbeProcess", (Process,), body)
    ProcessManager.bind_model_process(model, process_class, field)
    try:
        yield process_class
    finally:
        ProcessManager.unbind_model_process(model, process_class)


def fresh(instance: models.Model) -> Any:
    """
    Load another copy of an object from its own database.
    """
    return type(instance)._base_manager.using(instance._state.db).get(pk=instance.pk)


def stored(instance: models.Model, field: str = "state") -> Any:
    """
    Read one column of an object from its own database.
    """
    rows = type(instance)._base_manager.using(instance._state.db).filter(pk=instance.pk)
    return rows.values_list(field, flat=True).get()


def moves(instance: models.Model, process_name: str = "probe") -> list[tuple[Any, Any]]:
    """
    List the recorded moves of an object, oldest first.
    """
    return list(getattr(instance, process_name).history.values_list("from_state", "to_state"))


def sequences(instance: models.Model, process_name: str = "probe") -> list[int]:
    """
    List the sequences of an object's history rows, oldest first.
    """
    return list(getattr(instance, process_name).history.values_list("sequence", flat=True))


def all_records() -> int:
    """
    Count the history rows of every object.
    """
    return StatusChange.objects.count()
