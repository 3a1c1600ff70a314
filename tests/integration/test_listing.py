"""
Prove that lists of what is possible agree with what a call would be told.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_logic import Action, ProcessManager, Transition
from django_logic.exceptions import TransitionNotAllowed
from tests.app.models import Sale, Ticket
from tests.flows import Bind, declare, names, noting, records

pytestmark = pytest.mark.django_db


def test_list_holds_what_may_run_now_sorted_by_name(bind: Bind, ticket: Ticket) -> None:
    """
    Names and declarations come sorted, without those whose source or guards say no, and without duplicates.
    """
    go, stop = Transition("go", ["new"], "done", label="Go on"), Transition("stop", "*", "stopped")
    bind(
        declare(
            stop,
            go,
            Action("look", ["new"]),
            Transition("back", ["done"], "new"),
            Transition("closed", ["new"], "done", conditions=[noting([], answer=False)]),
        )
    )

    assert ticket.flow.get_available_actions() == ["go", "look", "stop"]
    assert ticket.flow.get_available_transitions()[0] is go
    assert [transition.label for transition in ticket.flow.get_available_transitions()] == ["Go on", None, None]
    assert ticket.flow.get_available_transitions(action_name="stop") == [stop]
    assert ticket.flow.get_available_actions(action_name="back") == []


def test_list_is_for_the_user_it_is_made_for(bind: Bind, ticket: Ticket, clerk: Any) -> None:
    """
    A user sees what he may run, the system everything.
    """
    bind(
        declare(
            Transition("go", ["new"], "done"),
            Transition("stop", ["new"], "stopped", permissions=[noting([], answer=False)]),
        )
    )

    assert ticket.flow.get_available_actions(user=clerk) == ["go"]
    assert ticket.flow.get_available_actions() == ["go", "stop"]


def test_ambiguous_action_is_not_listed(bind: Bind, ticket: Ticket) -> None:
    """
    What a call would be refused for is not offered.
    """
    bind(declare(Transition("go", ["new"], "a"), Transition("go", ["new"], "b"), Transition("stop", ["new"], "c")))

    assert ticket.flow.get_available_actions() == ["stop"]


@pytest.mark.parametrize("state", ["new", "done", "stopped", "elsewhere"])
def test_lists_reasons_and_calls_agree(bind: Bind, ticket: Ticket, clerk: Any, state: str) -> None:
    """
    Whatever the state: listed, without reasons and runnable are the same actions.
    """
    bind(
        declare(
            Transition("go", ["new"], "done"),
            Transition("back", ["done"], "new", conditions=[noting([], answer=False)]),
            Transition("stop", "*", "stopped"),
            Transition("touch", ["stopped"], "stopped"),
            Transition("guarded", "*", "done", permissions=[noting([], answer=False)]),
            Action("look", ["done", "stopped"]),
            duplicates="refuse",
        )
    )
    everything = ["back", "go", "guarded", "look", "stop", "touch"]

    listed = Ticket(pk=ticket.pk, state=state).flow.get_available_actions(user=clerk)
    free = [name for name in everything if not Ticket(pk=ticket.pk, state=state).flow.why_not(name, user=clerk)]
    ran = []
    for name in everything:
        Ticket.objects.filter(pk=ticket.pk).update(state=state)
        try:
            getattr(Ticket.objects.get(pk=ticket.pk).flow, name)(user=clerk)
            ran.append(name)
        except TransitionNotAllowed:
            pass

    assert listed == free == ran


def test_listing_writes_and_runs_nothing(bind: Bind, ticket: Ticket, settings: Any) -> None:
    """
    Guards are asked; no hook runs, no row is written, no signal of a refusal is audited.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    log: list[Any] = []
    bind(
        declare(
            Transition(
                "go",
                ["new"],
                "done",
                conditions=[noting(log, "guard")],
                prepare=[noting(log)],
                side_effects=[noting(log)],
            )
        )
    )

    with CaptureQueriesContext(
        connection,
    ) as queries:
        ticket.flow.get_available_actions()
        ticket.flow.why_not("go")
        ticket.flow.why_not("nonsense")

    assert names(log) == ["guard", "guard"]
    assert (len(queries), records()) == (0, (0, 0))


@pytest.mark.parametrize("count", [1, 7])
def test_page_of_objects_costs_one_query(bind: Bind, clerk: Any, count: int) -> None:
    """
    ``available_actions`` lists a page by primary key in a constant number of queries.
    """
    bind(
        declare(
            Transition("go", ["new"], "done"),
            Transition("back", ["done"], "new"),
            Action("look", "*", permissions=[noting([], answer=False)]),
        )
    )
    made = [Ticket.objects.create(state=("new", "done")[number % 2]) for number in range(count)]

    with CaptureQueriesContext(connection) as queries:
        listed = ProcessManager.available_actions(Ticket.objects.order_by("pk"), user=clerk, process_name="flow")

    assert listed == {ticket.pk: [("go", "back")[number % 2]] for number, ticket in enumerate(made)}
    assert len(queries) == 1


def test_page_that_loads_no_state_costs_no_query_for_each_object(bind: Bind) -> None:
    """
    A queryset that defers the state column is read at once, not object by object.
    """
    bind(declare(Transition("go", ["new"], "done")))
    for _number in range(5):
        Ticket.objects.create()

    with CaptureQueriesContext(connection) as queries:
        listed = ProcessManager.available_actions(Ticket.objects.only("note"), process_name="flow")

    assert list(listed.values()) == [["go"]] * 5
    assert len(queries) <= 2


def test_page_uses_the_accessor_called_process_by_default() -> None:
    """
    Table models need no name; an empty page lists nothing.
    """
    sale = Sale.objects.create(status="processing")

    assert ProcessManager.available_actions(Sale.objects.all()) == {sale.pk: ["to_cancelled", "to_fulfilled"]}
    assert ProcessManager.available_actions(Sale.objects.none()) == {}
