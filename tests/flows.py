"""
Declare small processes, bind them for one test, and read what a move left behind.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import models

from django_logic import Process, ProcessManager, Transition
from django_logic.call import Call, make_call
from django_logic.models import AuditEntry, StatusChange
from tests.app.models import Ticket

Bind = Callable[..., type[Process]]


def declare(*transitions: Transition, name: str = "flow", **attributes: Any) -> type[Process]:
    """
    Make a process class; the accessor is ``flow`` unless named, since ``process`` is taken on the test models.
    """
    body = {"__module__": __name__, "process_name": name, "transitions": list(transitions), **attributes}
    return type("FlowProcess", (Process,), body)


def call_on(process: Process, *, action: str | None = None, target: Any = None, **keywords: Any) -> Call:
    """
    Make a call without running it.
    """
    return make_call(
        column=process.column,
        tree=process.tree,
        instance=process.instance,
        keywords=keywords,
        action=action,
        target=target,
    )


@contextmanager
def bindings() -> Iterator[Bind]:
    """
    Give a function that binds a process, and take every binding back at the end.
    """
    made: list[tuple[Any, type[Process], str]] = []

    def bind(process_class: type[Process], model: Any = Ticket, state_field: str = "state") -> type[Process]:
        ProcessManager.bind_model_process(model, process_class, state_field)
        made.append((model, process_class, state_field))
        return process_class

    try:
        yield bind
    finally:
        for model, process_class, state_field in reversed(made):
            ProcessManager.unbind_model_process(model, process_class, state_field)


def noting(log: list[Any], name: str = "noted", answer: Any = True) -> Callable[..., Any]:
    """
    Make a hook that writes its name and keywords down and gives an answer; an exception is raised instead.
    """

    def hook(instance: Any, *user: Any, **keywords: Any) -> Any:
        log.append((name, user[0] if user else keywords.get("user"), keywords))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    hook.__name__ = name
    return hook


def names(log: list[Any]) -> list[str]:
    """
    Return which hooks ran, in order.
    """
    return [entry[0] for entry in log]


def stored(instance: models.Model, field: str = "state") -> Any:
    """
    Read one column from the database.
    """
    return type(instance)._base_manager.filter(pk=instance.pk).values_list(field, flat=True).get()


def moves(instance: models.Model, process: str = "flow") -> list[tuple[str | None, str | None]]:
    """
    Read the object's history as pairs of states.
    """
    return list(getattr(instance, process).history.values_list("from_state", "to_state"))


def records() -> tuple[int, int]:
    """
    Count all history rows and audit entries.
    """
    return StatusChange.objects.count(), AuditEntry.objects.count()


def write_catalogue(folder: Path, language: str, texts: Mapping[str, str]) -> None:
    """
    Write a compiled message catalogue that ``LOCALE_PATHS`` can name.
    """
    pairs = sorted({"": "Content-Type: text/plain; charset=UTF-8\n", **texts}.items())
    sources, targets = [key.encode() for key, _ in pairs], [text.encode() for _, text in pairs]
    start = 28 + 16 * len(pairs)
    tables, body = [], b""
    for words in (sources, targets):
        for word in words:
            tables.append(struct.pack("<II", len(word), start + len(body)))
            body += word + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, 0)
    place = folder / language / "LC_MESSAGES"
    place.mkdir(parents=True)
    (place / "django.mo").write_bytes(head + b"".join(tables) + body)
