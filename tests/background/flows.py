"""
Declare background processes that an attempt can import, drive their rows, and read what came of them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

from django.db import connection, models

from django_logic import Process
from django_logic.background import BackgroundAction, BackgroundTransition, Backoff, run_available
from django_logic.background.models import NEVER, TransitionMessage
from django_logic.clock import FromNow
from tests.app.models import Ticket

#: Makes a process of transitions and binds it to a model as ``instance.flow`` for the length of a test.
Flow = Callable[..., type[Process]]

AT_ONCE = Backoff(first=0, factor=1, limit=0, jitter=0)
_numbers = count(1)


def declare(*transitions: Any, **attributes: Any) -> type[Process]:
    """
    Make a process class that can be imported by its path, as one in a project can.
    """
    name = f"Flow{next(_numbers)}"
    body = {"__module__": __name__, "process_name": "flow", "transitions": list(transitions), **attributes}
    made = type(name, (Process,), body)
    globals()[name] = made
    return made


def rename(process_class: type[Process], name: str) -> None:
    """
    Take a class away from its path and give it another one, as a deploy that renames it does.
    """
    globals()[name] = globals().pop(process_class.__name__)
    process_class.__name__ = process_class.__qualname__ = name


def work(*side_effects: Any, action: str = "go", **options: Any) -> BackgroundTransition:
    """
    Declare ``new`` to ``done`` through ``busy``, and to ``failed`` when every attempt is spent.
    """
    slots = {"sources": ["new"], "target": "done", "in_progress_state": "busy", "failed_state": "failed"}
    return BackgroundTransition(action, side_effects=side_effects, **{**slots, **options})


def act(*side_effects: Any, action: str = "act", **options: Any) -> BackgroundAction:
    """
    Declare background work that leaves the state alone.
    """
    return BackgroundAction(action, side_effects=side_effects, **{"sources": ["new"], **options})


def messages(instance: models.Model, *kinds: str) -> list[TransitionMessage]:
    """
    List the rows of an object on its own database, oldest first.
    """
    rows = TransitionMessage.objects.using(instance._state.db).filter(instance_id=str(instance.pk))
    return list((rows.filter(kind__in=kinds) if kinds else rows).order_by("pk"))


def message(instance: models.Model, kind: str = "transition") -> TransitionMessage:
    """
    Return the only row of a kind that an object has.
    """
    (found,) = messages(instance, kind)
    return found


def make_due(using: str = "default") -> None:
    """
    End every pause, lease and delay, but not the wait for an operator.
    """
    TransitionMessage.objects.using(using).open().exclude(run_at=NEVER).update(run_at=FromNow(-1))


def run_out(using: str = "default", most: int = 40) -> int:
    """
    Run everything that is left, pauses cut short; return how many attempts that took.
    """
    ran = 0
    for _ in range(most):
        make_due(using)
        once = run_available(using=using)
        if not once:
            return ran
        ran += once
    raise AssertionError("there is no end of work")


def age(found: TransitionMessage, past: timedelta, *columns: str) -> None:
    """
    Set moments of a row back by the database's clock.
    """
    moment = FromNow(-past.total_seconds())
    TransitionMessage.objects.filter(pk=found.pk).update(**dict.fromkeys(columns, moment))


def new_ticket(**values: Any) -> Ticket:
    """
    Save an object.
    """
    return Ticket.objects.create(**values)


def execute(sql: str) -> None:
    """
    Send one statement past the library.
    """
    with connection.cursor() as cursor:
        cursor.execute(sql)
