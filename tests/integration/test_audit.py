"""
Prove which calls leave an audit entry, and what it says.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.db import transaction

from django_logic import Action, Transition
from django_logic.exceptions import TransitionNotAllowed
from django_logic.models import AuditEntry, StatusChange
from tests.app.models import Ticket
from tests.flows import Bind, declare, noting

pytestmark = pytest.mark.django_db

#: Marks what depends on a real commit: callbacks, threads, the fast path outside any transaction.
commits = pytest.mark.django_db(transaction=True)


def fails(instance: Any, **keywords: Any) -> None:
    """
    Break.
    """
    raise ZeroDivisionError("no weight")


def live(ticket: Ticket, **keywords: Any) -> None:
    """
    Ask for a move, a duplicate, three refusals, an action and two failures.
    """
    for ask in (
        lambda: ticket.flow.go(**keywords),
        lambda: ticket.flow.go(**keywords),
        lambda: ticket.flow.early(**keywords),
        lambda: ticket.flow.closed(**keywords),
        lambda: ticket.flow.transition_to("nowhere", **keywords),
        lambda: ticket.flow.look(**keywords),
        lambda: ticket.flow.crash(**keywords),
        lambda: ticket.flow.crash_far(**keywords),
    ):
        with suppress(TransitionNotAllowed, ZeroDivisionError):
            ask()


@pytest.fixture(autouse=True)
def flow(bind: Bind) -> None:
    """
    Bind a process in which everything can happen.
    """
    bind(
        declare(
            Transition("go", ["new"], "done"),
            Transition("early", ["new"], "other"),
            Transition("closed", ["done"], "other", conditions=[noting([], "is_open", False)]),
            Action("look", ["done"]),
            Transition("crash", ["done"], "other", side_effects=[fails]),
            Transition("crash_far", ["done"], "other", side_effects=[fails], failed_state="broken"),
        )
    )


REFUSALS = [
    ("early", "refused", "source_state", "done", "other"),
    ("closed", "refused", "condition", "done", "other"),
    ("to_nowhere", "refused", "source_state", "done", "nowhere"),
]
FAILURES = [("crash", "failed", "", "done", None), ("crash_far", "failed", "", "done", "broken")]


def entries() -> list[tuple[Any, ...]]:
    """
    Read all entries in their order.
    """
    return list(AuditEntry.objects.order_by("id").values_list("action", "outcome", "code", "from_state", "to_state"))


def test_nothing_is_audited_unless_asked_for(ticket: Ticket) -> None:
    """
    ``"off"``, the default: history alone.
    """
    live(ticket)

    assert entries() == []
    assert StatusChange.objects.count() == 2


def test_refusals_and_failures_are_audited_on_demand(ticket: Ticket, settings: Any) -> None:
    """
    ``"refusals"``: every refusal with its code and every failure, no move, duplicate or action.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "refusals"}

    live(ticket)

    assert entries() == [*REFUSALS, *FAILURES]


@commits
def test_everything_is_audited_on_demand(ticket: Ticket, settings: Any) -> None:
    """
    ``"all"``: one entry for every call, in the order they ended.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}

    live(ticket)

    assert entries() == [
        ("go", "moved", "", "new", "done"),
        ("go", "duplicate", "duplicate", "done", "done"),
        *REFUSALS,
        ("look", "done", "", "done", None),
        *FAILURES,
    ]


def test_entry_says_who_asked_why_and_what_was_told(ticket: Ticket, settings: Any, clerk: Any) -> None:
    """
    An entry has the fields of history, and the words the caller got.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}

    live(ticket, user=clerk, reason="end of day")

    moved, *_others = AuditEntry.objects.order_by("id")
    change = StatusChange.objects.earliest("id")
    assert (moved.sequence, moved.transition_id) == (change.sequence, change.transition_id)
    for entry in AuditEntry.objects.all():
        assert (entry.app_label, entry.model_name, entry.instance_id) == ("app", "ticket", str(ticket.pk))
        assert (entry.process_name, entry.field_name) == ("flow", "state")
        assert (entry.actor, entry.actor_label, entry.reason) == (clerk, "clerk", "end of day")
    assert "condition is_open says no" in AuditEntry.objects.get(action="closed").detail
    assert AuditEntry.objects.get(action="crash").detail == "ZeroDivisionError: no weight"


def test_denial_is_audited_with_its_code(bind: Bind, ticket: Ticket, settings: Any, clerk: Any) -> None:
    """
    Who tried what he may not is on record.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "refusals"}
    bind(declare(Transition("go", ["new"], "done", permissions=[noting([], answer=False)]), name="guarded"))

    with pytest.raises(TransitionNotAllowed):
        ticket.guarded.go(user=clerk)

    entry = AuditEntry.objects.get()
    assert (entry.outcome, entry.code, entry.actor, entry.process_name) == ("refused", "permission", clerk, "guarded")


def test_wrong_call_is_no_audit_matter(ticket: Ticket, settings: Any) -> None:
    """
    A programming error raised before anything is touched leaves no entry.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}

    for call in (lambda: ticket.flow.go(1), lambda: ticket.flow.go(request=1), lambda: ticket.flow.nonsense):
        with pytest.raises((TypeError, AttributeError)):
            call()

    assert entries() == []


@commits
def test_entry_lives_and_dies_with_the_callers_transaction(ticket: Ticket, settings: Any) -> None:
    """
    A refusal that the caller handles is kept with his work; with a rollback both are gone.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}

    with transaction.atomic(), pytest.raises(TransitionNotAllowed):
        ticket.flow.closed()
    with pytest.raises(TransitionNotAllowed), transaction.atomic():
        ticket.flow.closed()

    assert [entry[:3] for entry in entries()] == [("closed", "refused", "source_state")]


@pytest.mark.parametrize("text", ["no\x00weight", "half \ud800", "x" * 100_000])
def test_entry_takes_any_error_text(bind: Bind, ticket: Ticket, settings: Any, text: str) -> None:
    """
    What an exception says is stored in a form every database takes.
    """

    def breaks(instance: Any, **keywords: Any) -> None:
        raise ValueError(text)

    settings.DJANGO_LOGIC = {"AUDIT": "refusals"}
    bind(declare(Transition("go", ["new"], "done", side_effects=[breaks]), name="other"))

    with pytest.raises(ValueError, match=r"no|half|x"):
        ticket.other.go()

    detail = AuditEntry.objects.get().detail
    assert detail.startswith("ValueError: ")
    assert "\x00" not in detail
