"""
Drive every declaration of a process, from every state it starts in, alone and in bulk, to success and to failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django_logic import Process
from django_logic.background import run_available
from django_logic.bulk import bulk_transition
from django_logic.outbox.models import OutboxMessage
from django_logic.tree import tree_of

is_failing: ContextVar[bool] = ContextVar("is_failing", default=False)


def work(instance: Any, **_keywords: Any) -> None:
    """
    Fail, as a side effect, when the drive wants that.
    """
    if is_failing.get():
        raise RuntimeError("no paper")


@dataclass(frozen=True)
class Told:
    """
    Hold what a message told, as far as a catalogue can know it.
    """

    topic: str
    aggregate: str
    action: str
    start: Any
    end: Any


@contextmanager
def failing(fails: bool) -> Iterator[None]:
    """
    Let side effects fail for the length of a block, or not.
    """
    token = is_failing.set(fails)
    try:
        yield
    finally:
        is_failing.reset(token)


def drive(model: Any, process_class: type[Process], field: str = "state") -> list[OutboxMessage]:
    """
    Run everything that is declared in every way, and return the messages, oldest first.
    """
    before = set(OutboxMessage.objects.values_list("pk", flat=True))
    for candidate in tree_of(process_class).candidates:
        for start in candidate.sources:
            for fails in (False, True):
                for in_bulk in (False, True):
                    instance = model.objects.create(**{field: start}, **keys_of(model))
                    with failing(fails):
                        run(instance, process_class.process_name, candidate.transition.action_name, in_bulk)
    return [message for message in OutboxMessage.objects.all() if message.pk not in before]


def keys_of(model: Any) -> dict[str, Any]:
    """
    Return the values of keys that the database does not make.
    """
    return {"slug": f"slug {model.objects.count()}"} if hasattr(model, "slug") else {}


def run(instance: Any, process_name: str, action: str, in_bulk: bool) -> None:
    """
    Run one action of an object, with the work it leaves for later.
    """
    with suppress(RuntimeError):
        if in_bulk:
            rows = type(instance).objects.filter(pk=instance.pk)
            bulk_transition(rows, action, process_name=process_name, actor="drive")
        else:
            getattr(getattr(instance, process_name), action)(actor="drive")
    run_available()


def told_by(message: OutboxMessage) -> Told:
    """
    Return what a message told.
    """
    body = message.payload
    return Told(message.topic, message.aggregate, body["action"], body["from"], body["to"])
