"""
Prove how a call holds its row: row, nowait, cache and none, and that nothing stays held afterwards.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction

from django_logic import Transition
from django_logic.exceptions import TransitionTemporarilyUnavailable
from tests.app.hooked import fresh, hooked, nothing, stored
from tests.app.models import Ticket
from tests.races.together import Worker, held_by_another, needs_visible_waits

pytestmark = pytest.mark.django_db(transaction=True)


def test_nowait_is_busy_at_once() -> None:
    """
    A row that is held elsewhere refuses a nowait call as locked, without waiting and without a trace.
    """
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no lock on a row; what its writer's lock does is in tests/races/test_transient.py")
    ticket = Ticket.objects.create()

    with (
        held_by_another(ticket, "row"),
        hooked(Transition("go", ["new"], "done", lock="nowait")),
        pytest.raises(TransitionTemporarilyUnavailable) as refused,
    ):
        ticket.probe.go()

    assert refused.value.reason == "locked"
    assert refused.value.http_status == 503
    assert (stored(ticket), ticket.state) == ("new", "new")


def test_nowait_leaves_the_callers_transaction_usable() -> None:
    """
    Busy inside a caller's transaction costs the call, not what the caller did before and does afterwards.
    """
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no lock on a row")
    ticket, note = Ticket.objects.create(), Ticket.objects.create()

    way = Transition("go", ["new"], "done", lock="nowait")
    with held_by_another(ticket, "row"), hooked(way), transaction.atomic():
        Ticket.objects.filter(pk=note.pk).update(note="before")
        with pytest.raises(TransitionTemporarilyUnavailable):
            ticket.probe.go()
        Ticket.objects.filter(pk=note.pk).update(state="after")

    assert (stored(note, "note"), stored(note)) == ("before", "after")


def test_nowait_moves_a_free_row() -> None:
    """
    A free row is moved by a nowait call like by any other.
    """
    ticket = Ticket.objects.create()

    with hooked(Transition("go", ["new"], "done", lock="nowait", side_effects=[nothing])):
        moved = ticket.probe.go()
        again = ticket.probe.go()

    assert (moved, again) == (True, False)


LAYERS: list[tuple[str | None, str | None, str | None, bool]] = [
    (None, None, None, False),
    ("nowait", None, None, True),
    ("nowait", "row", None, False),
    (None, "nowait", None, True),
    ("row", "nowait", "row", False),
    (None, "row", "nowait", True),
]


@pytest.mark.parametrize(("project", "process", "declared", "is_busy_at_once"), LAYERS)
def test_the_nearest_declaration_of_a_lock_counts(
    project: str | None, process: str | None, declared: str | None, is_busy_at_once: bool, settings: Any
) -> None:
    """
    A transition's lock goes before its process's, that before the project's LOCK, that before "row".
    """
    needs_visible_waits()
    settings.DJANGO_LOGIC = {} if project is None else {"LOCK": project}
    ticket = Ticket.objects.create()

    with hooked(Transition("go", ["new"], "done", side_effects=[nothing], lock=declared), lock=process):
        with transaction.atomic():
            Ticket.objects.filter(pk=ticket.pk).update(note="held")
            worker = Worker(lambda: fresh(ticket).probe.go())
            if is_busy_at_once:
                worker.join()
            else:
                worker.until_it_waits()
        outcome = worker.join()

    assert (type(outcome.error) is TransitionTemporarilyUnavailable) is is_busy_at_once
    assert (outcome.value is True) is not is_busy_at_once
