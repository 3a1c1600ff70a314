"""
Prove what a refused caller learns, and that a refusal leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from django_logic import Transition
from django_logic.exceptions import (
    InvalidTransition,
    TransitionForbidden,
    TransitionNotAllowed,
)
from tests.app.models import Sale, Ticket
from tests.flows import Bind, declare, names, noting, records, stored

pytestmark = pytest.mark.django_db


Call = Callable[..., Any]


def refused(call: Call, *arguments: Any, **keywords: Any) -> TransitionNotAllowed:
    """
    Return the refusal of a call.
    """
    with pytest.raises(TransitionNotAllowed) as caught:
        call(*arguments, **keywords)

    return caught.value


def says_no(instance: Any, *user: Any, **keywords: Any) -> bool:
    """
    Refuse everybody.
    """
    return False


def test_missing_edge_names_the_object_and_both_states(bind: Bind, ticket: Ticket) -> None:
    """
    A move that is not declared tells which object, from where, to where, and what to do.
    """
    bind(declare(Transition("ship", ["paid", "packed"], "sent")))

    error = refused(ticket.flow.ship)

    assert type(error) is InvalidTransition
    assert str(error) == (
        f"FlowProcess.ship refused for Ticket {ticket.pk} in state 'new': cannot move new → sent; it may start from"
        " 'packed', 'paid'. Reload the object and choose an available action."
    )
    assert (error.action, error.target, error.current_state) == ("ship", "sent", "new")
    assert (error.reason, error.http_status) == ("source_state", 409)
    assert error.user_message == "This is not possible in the present state."
    assert (stored(ticket), records()) == ("new", (0, 0))


def test_missing_edge_of_a_table_names_the_object_and_both_states() -> None:
    """
    The same by target.
    """
    sale = Sale.objects.create(status="fulfilled")

    error = refused(sale.transition_to, "draft")

    assert type(error) is InvalidTransition
    assert f"Sale {sale.pk}" in str(error)
    assert "fulfilled → draft" in str(error)
    assert (error.action, error.target, error.current_state) == (None, "draft", "fulfilled")
    assert error.available_actions == []


@pytest.mark.parametrize(
    ("slots", "keywords", "code", "status", "kind"),
    [
        ({"permissions": [says_no]}, {"user": True}, "permission", 403, TransitionForbidden),
        ({"conditions": [says_no]}, {}, "condition", 422, TransitionNotAllowed),
        ({}, {"expected_version": 9}, "stale_version", 412, TransitionNotAllowed),
    ],
)
def test_refusal_carries_what_was_asked_and_what_was_found(
    bind: Bind, ticket: Ticket, clerk: Any, slots: Any, keywords: Any, code: str, status: int, kind: type[Exception]
) -> None:
    """
    Action, target, present state, alternatives, reasons and status are attributes of every refusal.
    """
    bind(declare(Transition("go", ["new"], "done", **slots), Transition("stop", ["new"], "stopped")))

    error = refused(ticket.flow.go, **{**keywords, **({"user": clerk} if "user" in keywords else {})})

    assert type(error) is kind
    assert (error.action, error.target, error.current_state) == ("go", "done", "new")
    assert (error.reason, error.http_status) == (code, status)
    assert [reason.code for reason in error.reasons] == [code]
    assert error.available_actions == (["stop"] if code != "stale_version" else ["go", "stop"])
    assert isinstance(error, PermissionDenied) == (code == "permission")
    assert (stored(ticket), records()) == ("new", (0, 0))


def test_every_failed_condition_reaches_the_caller(bind: Bind, ticket: Ticket) -> None:
    """
    One answer names all that is missing; the message names the first for a developer.
    """
    log: list[Any] = []
    bind(
        declare(
            Transition("go", ["new"], "done", conditions=[noting(log, "paid", False), noting(log, "packed", False)])
        )
    )

    error = refused(ticket.flow.go)

    assert [reason.params["hook"] for reason in error.reasons] == ["paid", "packed"]
    assert "condition paid says no" in str(error)
    assert names(log) == ["paid", "packed"]


def test_denied_user_learns_nothing_of_the_conditions(bind: Bind, ticket: Ticket, clerk: Any) -> None:
    """
    With permission and condition against it, only the permission is told, also by ``why_not``.
    """
    log: list[Any] = []
    bind(declare(Transition("go", ["other"], "done", permissions=[says_no], conditions=[noting(log, answer=False)])))

    error = refused(ticket.flow.go, user=clerk)
    reasons = ticket.flow.why_not("go", user=clerk)

    assert [reason.code for reason in error.reasons] == [reason.code for reason in reasons] == ["permission"]
    assert log == []


def test_only_the_guards_of_the_asked_action_run(bind: Bind, ticket: Ticket, clerk: Any) -> None:
    """
    Being refused one action asks no guard of another, until the alternatives are read.
    """
    log: list[Any] = []
    bind(
        declare(
            Transition("go", ["new"], "done", conditions=[noting(log, "of_go", False)]),
            Transition(
                "stop", ["new"], "stopped", permissions=[noting(log, "may_stop")], conditions=[noting(log, "of_stop")]
            ),
        )
    )

    error = refused(ticket.flow.go, user=clerk)
    before = names(log)
    listed = error.available_actions

    assert before == ["of_go"]
    assert listed == ["stop"]
    assert names(log) == ["of_go", "of_go", "may_stop", "of_stop"]


def test_raising_guard_of_another_action_never_replaces_the_refusal(bind: Bind, ticket: Ticket) -> None:
    """
    The hint is lost, the refusal is told.
    """
    bind(
        declare(
            Transition("go", ["new"], "done", conditions=[says_no]),
            Transition("stop", ["new"], "stopped", conditions=[noting([], answer=ZeroDivisionError())]),
        )
    )

    error = refused(ticket.flow.go)

    assert (error.reason, error.available_actions) == ("condition", None)


@pytest.mark.parametrize("slot", ["conditions", "permissions"])
def test_raising_guard_reaches_the_caller_and_writes_nothing(bind: Bind, ticket: Ticket, clerk: Any, slot: str) -> None:
    """
    A guard that breaks is an error, not a refusal.
    """
    bind(
        declare(
            Transition("go", ["new"], "done", failed_state="broken", **{slot: [noting([], answer=KeyError("weight"))]})
        )
    )

    with pytest.raises(KeyError, match="weight"):
        ticket.flow.go(user=clerk)

    assert (stored(ticket), ticket.state, records()) == ("new", "new", (0, 0))


def test_ambiguous_call_runs_nothing(bind: Bind, ticket: Ticket) -> None:
    """
    Two declarations that fit are a question for the developer; neither runs.
    """
    log: list[Any] = []
    bind(declare(*(Transition("go", ["new"], end, side_effects=[noting(log)]) for end in ("a", "b"))))

    error = refused(ticket.flow.go)

    assert (error.reason, error.http_status) == ("ambiguous", 409)
    assert "Make their conditions exclude each other" in str(error)
    assert (stored(ticket), log) == ("new", [])
