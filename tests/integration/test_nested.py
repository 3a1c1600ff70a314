"""
Prove how calls run through nested processes, and how calls chain.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_logic import Transition
from django_logic.exceptions import TransitionForbidden, TransitionNotAllowed
from tests.app.models import Ticket
from tests.flows import Bind, declare, moves, names, noting, stored

pytestmark = pytest.mark.django_db

#: Marks what depends on a real commit: callbacks, threads, the fast path outside any transaction.
commits = pytest.mark.django_db(transaction=True)


def is_small(instance: Ticket, **keywords: Any) -> bool:
    """
    Tell small tickets.
    """
    return instance.note == "small"


def is_large(instance: Ticket, **keywords: Any) -> bool:
    """
    Tell large tickets.
    """
    return instance.note == "large"


@pytest.mark.parametrize(("note", "end"), [("small", "paid"), ("large", "invoiced")])
def test_shared_name_runs_where_the_guards_fit(bind: Bind, note: str, end: str) -> None:
    """
    Of two nested processes with one action, the one whose own conditions hold runs it.
    """
    small = declare(Transition("settle", ["new"], "paid"), conditions=[is_small])
    large = declare(Transition("settle", ["new"], "invoiced"), conditions=[is_large])
    bind(declare(nested_processes=[small, large]))
    ticket = Ticket.objects.create(note=note)

    assert ticket.flow.settle() is True

    assert stored(ticket) == end
    assert ticket.flow.history.get().action == "settle"


def test_shared_name_that_fits_nowhere_names_every_reason(bind: Bind, ticket: Ticket) -> None:
    """
    With none of several fitting, the reasons of all of them are told.
    """
    small = declare(Transition("settle", ["new"], "paid"), conditions=[is_small])
    large = declare(Transition("settle", ["new"], "invoiced"), conditions=[is_large])
    bind(declare(nested_processes=[small, large]))

    with pytest.raises(TransitionNotAllowed) as caught:
        ticket.flow.settle()

    assert [reason.params["hook"] for reason in caught.value.reasons] == ["is_small", "is_large"]
    assert moves(ticket) == []


def test_shared_name_with_parted_sources_follows_the_state(bind: Bind, ticket: Ticket) -> None:
    """
    One action may mean a different step from each state.
    """
    first, second = declare(Transition("next", ["new"], "middle")), declare(Transition("next", ["middle"], "end"))
    bind(declare(nested_processes=[first, second]))

    answers = [ticket.flow.next(), ticket.flow.next(), ticket.flow.next()]

    assert answers == [True, True, False]
    assert moves(ticket) == [("new", "middle"), ("middle", "end")]


def test_permission_of_the_root_covers_nested_actions(bind: Bind, ticket: Ticket, clerk: Any) -> None:
    """
    A guard at the root holds for all below it, before theirs.
    """
    log: list[Any] = []
    nested = declare(
        Transition("go", ["new"], "done", permissions=[noting(log, "own")]), permissions=[noting(log, "nested")]
    )
    bind(declare(nested_processes=[nested], permissions=[noting(log, "root", False)]))

    with pytest.raises(TransitionForbidden):
        ticket.flow.go(user=clerk)

    assert stored(ticket) == "new"
    assert names(log)[0] == "root"


def test_target_is_reached_through_a_nested_process(bind: Bind, ticket: Ticket) -> None:
    """
    ``transition_to`` finds the edge wherever it is declared, and records the action it took.
    """
    bind(declare(nested_processes=[declare(Transition("go", ["new"], "done"))]))

    assert ticket.flow.transition_to("done") is True

    assert (stored(ticket), ticket.flow.history.get().action) == ("done", "go")


def test_target_that_two_edges_reach_is_ambiguous(bind: Bind, ticket: Ticket) -> None:
    """
    By target, too, no edge is chosen by its place.
    """
    bind(declare(Transition("go", ["new"], "done"), Transition("run", ["new"], "done")))

    with pytest.raises(TransitionNotAllowed) as caught:
        ticket.flow.transition_to("done")

    assert caught.value.reason == "ambiguous"
    assert ticket.flow.run() is True


@commits
def test_next_transition_follows_with_the_same_keywords(bind: Bind, ticket: Ticket, clerk: Any) -> None:
    """
    The follow-up runs after the commit, as the same user, as a child of the call, with all but the version.
    """
    log: list[Any] = []
    bind(
        declare(
            Transition("go", ["new"], "done", next_transition="ship", callbacks=[noting(log, "after go")]),
            Transition(
                "ship", ["done"], "sent", permissions=[noting(log, "permission")], side_effects=[noting(log, "ship")]
            ),
        )
    )

    assert ticket.flow.go(user=clerk, reason="ready", tracking="AB123", expected_version=0) is True

    assert names(log) == ["after go", "permission", "ship"]
    assert moves(ticket) == [("new", "done"), ("done", "sent")]
    first, second = ticket.flow.history
    assert (second.actor, second.reason, log[2][2]["tracking"]) == (clerk, "ready", "AB123")
    assert (second.parent_id, second.root_id) == (first.transition_id, first.transition_id)
    assert (ticket.state, stored(ticket)) == ("sent", "sent")


@commits
@pytest.mark.parametrize("why", ["ambiguous", "refused", "forbidden", "failing"])
def test_next_transition_that_can_not_run_never_fails_the_call(
    bind: Bind, ticket: Ticket, clerk: Any, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    """
    Ambiguous, refused, forbidden or failing: the first move stands, the follow-up is logged and nothing of it remains.
    """
    log: list[Any] = []
    followers = {
        "ambiguous": [Transition("ship", ["done"], end, side_effects=[noting(log)]) for end in ("a", "b")],
        "refused": [
            Transition("ship", ["done"], "sent", conditions=[noting([], answer=False)], side_effects=[noting(log)])
        ],
        "forbidden": [
            Transition("ship", ["done"], "sent", permissions=[noting([], answer=False)], side_effects=[noting(log)])
        ],
        "failing": [Transition("ship", ["done"], "sent", side_effects=[noting([], answer=ZeroDivisionError())])],
    }
    bind(declare(Transition("go", ["new"], "done", next_transition="ship"), *followers[why]))

    with caplog.at_level(logging.INFO, "django-logic.transition"):
        assert ticket.flow.go(user=clerk) is True

    assert (moves(ticket), log) == ([("new", "done")], [])
    levels = {record.levelname for record in caplog.records if "next transition ship" in record.getMessage()}
    assert levels == ({"ERROR"} if why in ("ambiguous", "failing") else {"INFO"})


def test_call_from_a_hook_of_another_object_shares_its_root(bind: Bind, ticket: Ticket) -> None:
    """
    One root id reads the whole cascade, however deep.
    """
    other = Ticket.objects.create(note="other")

    def pull(instance: Ticket, **keywords: Any) -> None:
        if instance.pk != other.pk:
            other.flow.go()

    bind(declare(Transition("go", ["new"], "done", side_effects=[pull])))

    ticket.flow.go()

    outer, inner = ticket.flow.history.get(), other.flow.history.get()
    assert (inner.root_id, inner.parent_id) == (outer.root_id, outer.transition_id)
    assert (outer.parent_id, outer.root_id) == (None, outer.transition_id)


@commits
@pytest.mark.parametrize("kind", ["side_effects", "prepare", "callbacks", "failure_callbacks"])
def test_error_of_a_hook_reaches_the_caller_or_the_log(
    bind: Bind, ticket: Ticket, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """
    Side effects and prepare fail the call; callbacks are best effort, logged, and the next one runs.
    """
    log: list[Any] = []
    boom = noting([], "boom", ZeroDivisionError("boom"))
    slots: dict[str, Any] = {kind: [boom, noting(log, "next one")]}
    if kind == "failure_callbacks":
        slots["side_effects"] = [noting([], answer=KeyError("first"))]
    bind(declare(Transition("go", ["new"], "done", **slots)))

    error = {"side_effects": ZeroDivisionError, "prepare": ZeroDivisionError, "failure_callbacks": KeyError}.get(kind)
    if error:
        with pytest.raises(error):
            ticket.flow.go()
    else:
        assert ticket.flow.go() is True

    swallowed = kind in ("callbacks", "failure_callbacks")
    assert names(log) == (["next one"] if swallowed else [])
    assert stored(ticket) == ("done" if kind == "callbacks" else "new")
    assert any(record.exc_info and record.exc_info[0] is ZeroDivisionError for record in caplog.records) == swallowed
