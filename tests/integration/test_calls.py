"""
Prove what a call takes, what it gives back, and what is in the database afterwards.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.template import Context, Template

from django_logic import Action, Transition
from django_logic.exceptions import InvalidTransition, TransitionNotAllowed, UnknownAction
from tests.app.models import Order, Sale, Status, Ticket
from tests.flows import Bind, declare, moves, names, noting, records, stored

pytestmark = pytest.mark.django_db


#: Marks what depends on a real commit: callbacks, and the fast path outside any transaction.
commits = pytest.mark.django_db(transaction=True)


GO = Transition("go", ["new"], "done")


def nothing_happened(ticket: Ticket, log: list[Any]) -> bool:
    """
    Tell whether neither the database nor a hook knows of a call.
    """
    return stored(ticket) == ticket.state == "new" and records() == (0, 0) and log == []


@commits
@pytest.mark.parametrize("work", [False, True])
def test_call_moves_the_object_and_says_so(bind: Bind, ticket: Ticket, work: bool) -> None:
    """
    True means this call moved the object: column, instance and history agree.
    """
    bind(declare(Transition("go", ["new"], "done", side_effects=[noting([])] if work else [])))

    answer = ticket.flow.go(reason="ready")

    assert answer is True
    assert stored(ticket) == ticket.state == "done"
    assert moves(ticket) == [("new", "done")]


@commits
@pytest.mark.parametrize("by", ["action", "target"])
@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("work", [False, True])
def test_duplicate_is_a_quiet_no(bind: Bind, ticket: Ticket, by: str, stale: bool, work: bool) -> None:
    """
    False means the object was there already: nothing ran, nothing was written, and the instance knows.
    """
    log: list[Any] = []
    hooks = [noting(log)] if work else []
    bind(
        declare(
            Transition("go", ["new"], "done", conditions=hooks, side_effects=hooks, callbacks=[noting(log, "after")])
        )
    )
    copy = Ticket.objects.get()
    copy.flow.go()
    if not stale:
        ticket.refresh_from_db()
    log.clear()

    answer = ticket.flow.go() if by == "action" else ticket.flow.transition_to("done")

    assert answer is False
    assert (stored(ticket), ticket.state, log) == ("done", "done", [])
    assert moves(ticket) == [("new", "done")]


@pytest.mark.parametrize("by", ["action", "target"])
def test_duplicate_is_refused_where_the_process_says_so(bind: Bind, ticket: Ticket, by: str) -> None:
    """
    ``duplicates = "refuse"`` turns the quiet no into an exception with a code of its own.
    """
    bind(declare(GO, duplicates="refuse"))
    ticket.flow.go()

    with pytest.raises(TransitionNotAllowed) as caught:
        ticket.flow.go() if by == "action" else ticket.flow.transition_to("done")

    assert (caught.value.reason, caught.value.http_status) == ("duplicate", 409)
    assert moves(ticket) == [("new", "done")]


@commits
def test_self_transition_always_runs(bind: Bind, ticket: Ticket) -> None:
    """
    A target that is its own source is work to do each time, with a record each time.
    """
    log: list[Any] = []
    bind(declare(Transition("touch", ["new"], "new", side_effects=[noting(log)]), Transition("ping", ["new"], "new")))

    answers = [ticket.flow.touch(), ticket.flow.touch(), ticket.flow.ping()]

    assert answers == [True] * 3
    assert names(log) == ["noted", "noted"]
    assert moves(ticket) == [("new", "new")] * 3


@commits
def test_action_does_its_work_and_changes_no_state(bind: Bind, ticket: Ticket) -> None:
    """
    An action answers True each time, moves nothing and writes no history.
    """
    log: list[Any] = []
    bind(declare(Action("look", ["new"], side_effects=[noting(log, "work")], callbacks=[noting(log, "after")])))

    answers = [ticket.flow.look(), ticket.flow.look()]

    assert answers == [True, True]
    assert names(log) == ["work", "after"] * 2
    assert (stored(ticket), records()) == ("new", (0, 0))


def test_unknown_action_is_refused_on_access() -> None:
    """
    A misspelled action is an AttributeError with the nearest names, so ``hasattr`` is honest.
    """
    order = Order(pk=1)

    with pytest.raises(UnknownAction) as caught:
        order.process.aprove  # noqa: B018

    assert isinstance(caught.value, AttributeError)
    assert isinstance(caught.value, TransitionNotAllowed)
    assert "Did you mean 'approve'?" in str(caught.value)
    assert (caught.value.reason, caught.value.http_status, caught.value.action) == ("unknown_action", 404, "aprove")
    assert [hasattr(order.process, name) for name in ("approve", "nonsense", "_approve", "__wrapped__")] == [
        True,
        False,
        False,
        False,
    ]
    assert getattr(order.process, "nonsense", "default") == "default"
    assert "approve" in dir(order.process)


def test_unknown_target_is_refused_with_the_nearest() -> None:
    """
    A misspelled state is a move that is not declared; the words name the one that was meant.
    """
    sale = Sale.objects.create()

    with pytest.raises(InvalidTransition) as caught:
        sale.transition_to("plased")

    assert "Did you mean 'placed'" in str(caught.value)
    assert (caught.value.target, caught.value.current_state, caught.value.reason) == ("plased", "draft", "source_state")
    assert (stored(sale, "status"), records()) == ("draft", (0, 0))


def test_template_never_runs_an_action(bind: Bind, ticket: Ticket) -> None:
    """
    Rendering a page moves nothing, by action or by target, on a process or on a table.
    """
    log: list[Any] = []
    bind(declare(Transition("go", ["new"], "done", conditions=[noting(log)])))
    sale = Sale.objects.create()
    page = Template(
        "[{{ ticket.flow.go }}][{{ ticket.flow.nonsense }}]"
        "[{{ ticket.flow.transition_to }}][{{ ticket.flow.atransition }}]"
        "[{{ sale.transition_to }}][{{ sale.atransition_to }}][{{ sale.process.to_placed }}]"
        "[{{ ticket.flow.get_available_actions|join:',' }}]"
    )

    text = page.render(Context({"ticket": ticket, "sale": sale}))

    assert text == "[][][][][][][][go]"
    log.clear()
    assert nothing_happened(ticket, log)
    assert stored(sale, "status") == "draft"


@commits
def test_stale_caller_is_refused_by_version(bind: Bind, ticket: Ticket) -> None:
    """
    ``expected_version=`` refuses whoever decided on an older history, before anything else is judged.
    """
    bind(declare(GO, Transition("back", ["done"], "new")))
    seen = ticket.flow.version
    Ticket.objects.get().flow.go()

    with pytest.raises(TransitionNotAllowed) as caught:
        ticket.flow.go(expected_version=seen)

    assert (caught.value.reason, caught.value.http_status) == ("stale_version", 412)
    assert "expected version 0, found 1" in str(caught.value)
    assert ticket.flow.back(expected_version=1) is True
    assert moves(ticket) == [("new", "done"), ("done", "new")]


@commits
def test_version_counts_moves_without_gaps(bind: Bind, ticket: Ticket) -> None:
    """
    Refusals, duplicates, failures and actions leave no hole; the version is the newest sequence.
    """

    def fails(instance: Any, **keywords: Any) -> None:
        raise ZeroDivisionError

    bind(
        declare(
            GO,
            Transition("back", ["done"], "new"),
            Transition("crash", "*", "broken", side_effects=[fails]),
            Action("look", "*"),
        )
    )
    versions = [ticket.flow.version]

    for _round in range(3):
        for step in ("go", "go", "look", "crash", "back", "nonsense"):
            with suppress(TransitionNotAllowed, ZeroDivisionError):
                getattr(ticket.flow, step)()
            versions.append(ticket.flow.version)

    assert list(ticket.flow.history.values_list("sequence", flat=True)) == [1, 2, 3, 4, 5, 6]
    assert versions[0] == 0
    assert versions[-1] == 6


def test_table_takes_members_and_values_alike() -> None:
    """
    ``transition_to`` and ``can_transition_to`` understand both.
    """
    first, second = Sale.objects.create(), Sale.objects.create()

    answers = [
        (sale.can_transition_to(target), sale.transition_to(target), sale.transition_to(target))
        for sale, target in ((first, "placed"), (second, Status.PLACED))
    ]

    assert answers == [(True, True, False)] * 2
    assert (first.status, second.status) == ("placed", "placed")
