"""
Driving one call through the real engine, inline, with everything that follows it, and noting what it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from django.db import connections, models
from django.test import TestCase
from django.utils.module_loading import import_string

from django_logic.background import run_available
from django_logic.conf import sync_execution
from django_logic.subject import alias_of
from django_logic.testing.journey import Step
from django_logic.testing.reading import fresh_state, process_of
from django_logic.testing.tracking import Injection, tracked

__all__ = ["deliver_events", "drive", "run_background", "within_commits"]


def drive(
    instance: models.Model,
    process_name: str,
    step: Step,
    work: Callable[[], Any],
    injection: Injection | None = None,
) -> Any:
    """
    Do some work with background execution inline, and complete a step by what happened; return the work's answer.

    What the work raises is in ``step.error``, not raised. In a test's own transaction the work scheduled for after the
    commit runs as soon as the call returns, as it would after a real commit.
    """
    process = process_of(instance, process_name)
    mark = process.version
    answer = None
    with tracked(process, step.hooks, injection), sync_execution(), within_commits(alias_of(instance)):
        try:
            answer = work()
        except Exception as error:
            step.error = error
    step.after = fresh_state(instance, process_name)
    step.states = list(process.history.filter(sequence__gt=mark).values_list("to_state", flat=True))
    return answer


def within_commits(alias: str) -> AbstractContextManager[Any]:
    """
    Run work that waits for a commit at the end of the block, where a test's transaction would keep it from running.

    A transaction that the test itself opened on a database that commits keeps such work until its own end.
    """
    blocks: list[Any] = connections[alias].atomic_blocks
    if not blocks or not blocks[0]._from_testcase:
        return nullcontext()
    captured: AbstractContextManager[Any] = TestCase.captureOnCommitCallbacks(using=alias, execute=True)
    return captured


def run_background(queues: Iterable[str] | None = None, limit: int | None = None, *, using: str = "default") -> int:
    """
    Run the background work that is due, of these queues or of all, as workers would; return how many rows ran.

    What fails an attempt is recorded on its row and does not come out.
    """
    with within_commits(using):
        return run_available(queues, limit, using=using)


def deliver_events(*, using: str = "default") -> int:
    """
    Deliver the events that are due to the subscribers in Python, as a relay would; return how many arrived.

    What a subscriber raises is recorded on its row and does not come out. No broker is spoken to.
    """
    names = import_string("django_logic.outbox.destinations.names_of_subscribers")()
    with within_commits(using):
        count: int = import_string("django_logic.outbox.relay.drain")(using, only=names)
    return count
