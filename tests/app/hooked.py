"""
Bind throw-away processes to test models, and look at what a call left behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import models
from django.dispatch import Signal

from django_logic import Process, ProcessManager, Transition
from django_logic.locks import cache_key
from django_logic.models import StatusChange
from django_logic.process import call_of
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


@contextmanager
def receiver(signal: Signal, sender: Any, work: Any) -> Iterator[list[dict[str, Any]]]:
    """
    Connect a receiver within the block; give what each signal carried.
    """
    heard: list[dict[str, Any]] = []

    def receive(instance: Any, **kwargs: Any) -> None:
        heard.append({"state": getattr(instance, "status", None) or getattr(instance, "state", None), **kwargs})
        work(instance)

    signal.connect(receive, sender=sender)
    try:
        yield heard
    finally:
        signal.disconnect(receive, sender=sender)


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


def lock_key(instance: Any) -> str:
    """
    Return the key of an object's state lock in the cache.
    """
    return cache_key(call_of(instance.probe, action="go", keywords={}))


def all_records() -> int:
    """
    Count the history rows of every object.
    """
    return StatusChange.objects.count()


class Boom(Exception):
    """
    Stand for whatever goes wrong in a hook.
    """


def fail(instance: Any, *user: Any, **kwargs: Any) -> None:
    """
    Raise.
    """
    raise Boom


def nothing(instance: Any, *user: Any, **kwargs: Any) -> None:
    """
    Do nothing, under the lock.
    """


class Diary(list[Any]):
    """
    Make hooks that write down that they ran, and raise where told to.
    """

    def hook(self, name: str, error: BaseException | None = None, answer: Any = True) -> Any:
        """
        Make one hook; ``exception`` is written down too where the hook gets one.
        """

        def run(instance: Any, *user: Any, **kwargs: Any) -> Any:
            self.append((name, instance.state, *([kwargs["exception"]] if "exception" in kwargs else [])))
            if error is not None:
                raise error
            return answer

        run.__name__ = name
        return run

    @property
    def names(self) -> list[str]:
        """
        Return which hooks ran, in order.
        """
        return [entry[0] for entry in self]
