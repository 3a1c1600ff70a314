"""
Prove that one object's life reads like a story, each event told once.
"""

from __future__ import annotations

from typing import Any

import pytest

from django_logic import Transition
from django_logic.exceptions import InvalidTransition
from tests.app.models import Sale, Ticket
from tests.flows import Bind, declare, noting

pytestmark = pytest.mark.django_db

#: Marks what depends on a real commit: callbacks, threads, the fast path outside any transaction.
commits = pytest.mark.django_db(transaction=True)


def live(sale: Sale, customer: Any) -> None:
    """
    Live the life of the seed's order.
    """
    sale.transition_to("placed", actor=customer, reason="checkout completed")
    sale.transition_to("processing", reason="payment succeeded")
    assert sale.transition_to("processing", reason="payment succeeded") is False
    sale.transition_to("fulfilled", actor="warehouse", reason="dispatched, tracking AB123")
    with pytest.raises(InvalidTransition):
        sale.transition_to("cancelled", actor=customer)


def told(sale: Any) -> list[tuple[Any, ...]]:
    """
    Return a timeline as rows.
    """
    return [
        (line.kind, line.from_state, line.to_state, line.actor, line.reason, line.code)
        for line in sale.process.timeline()
    ]


@commits
def test_one_order_is_read_from_its_history(settings: Any, clerk: Any) -> None:
    """
    The seed's order: three moves, a retried task that was a quiet no-op, and a refused cancellation.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    sale = Sale.objects.create()

    live(sale, clerk)

    assert told(sale) == [
        ("moved", "draft", "placed", "clerk", "checkout completed", ""),
        ("moved", "placed", "processing", "system", "payment succeeded", ""),
        ("duplicate", "processing", "processing", "system", "payment succeeded", "duplicate"),
        ("moved", "processing", "fulfilled", "warehouse", "dispatched, tracking AB123", ""),
        ("refused", "fulfilled", "cancelled", "clerk", "", "source_state"),
    ]


@pytest.mark.parametrize(
    ("level", "kinds"),
    [
        ("off", ["moved", "moved", "moved"]),
        ("refusals", ["moved", "moved", "moved", "refused"]),
        ("all", ["moved", "moved", "duplicate", "moved", "refused"]),
    ],
)
def test_timeline_tells_each_event_once_at_every_level(settings: Any, clerk: Any, level: str, kinds: list[str]) -> None:
    """
    History and audit overlap for moves; each is one line.
    """
    settings.DJANGO_LOGIC = {"AUDIT": level}
    sale = Sale.objects.create()

    live(sale, clerk)

    assert [line.kind for line in sale.process.timeline()] == kinds
    times = [line.at for line in sale.process.timeline()]
    assert times == sorted(times)


def test_failure_that_moved_the_object_is_one_line(bind: Bind, ticket: Ticket, settings: Any) -> None:
    """
    A failure with ``failed_state`` is told once, with the state it led to.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    bind(
        declare(
            Transition("go", ["new"], "done", side_effects=[noting([], answer=ValueError("no"))], failed_state="broken")
        )
    )

    with pytest.raises(ValueError, match="no"):
        ticket.flow.go()

    (line,) = ticket.flow.timeline()
    assert (line.from_state, line.to_state, line.action) == ("new", "broken", "go")


def test_timeline_is_of_one_object_and_one_process(settings: Any, clerk: Any) -> None:
    """
    Neither another object's events nor those of another model with the same key appear.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    first, second = Sale.objects.create(pk=1), Sale.objects.create(pk=2)
    ticket = Ticket.objects.create(pk=1)

    live(first, clerk)
    ticket.process.publish()

    assert len(told(first)) == 5
    assert told(second) == []
    assert [line.to_state for line in ticket.process.timeline()] == ["published"]


def test_line_is_plain_data_for_the_web(settings: Any, clerk: Any) -> None:
    """
    A line turns into the names the HTTP layer promises.
    """
    sale = Sale.objects.create()
    sale.transition_to("placed", actor=clerk, reason="checkout")

    (line,) = sale.process.timeline()

    assert line.as_dict() == {
        "at": sale.history.get().occurred_at.isoformat(),
        "kind": "moved",
        "action": "to_placed",
        "from": "draft",
        "to": "placed",
        "actor": "clerk",
        "reason": "checkout",
        "code": "",
    }
