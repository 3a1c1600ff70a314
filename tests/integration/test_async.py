"""
Prove that async code moves objects as sync code does.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation

from django_logic import Transition
from django_logic.exceptions import InvalidTransition, TransitionForbidden, UnknownAction
from tests.app.models import Sale, Ticket
from tests.flows import Bind, declare, moves, names, noting, stored

pytestmark = pytest.mark.django_db

#: Marks what depends on a real commit: callbacks, threads, the fast path outside any transaction.
commits = pytest.mark.django_db(transaction=True)


@commits
def test_twin_of_an_action_moves_and_answers(bind: Bind, ticket: Ticket, clerk: Any) -> None:
    """
    ``await process.atransition(name, …)`` is the call, hooks and callbacks included.
    """
    log: list[Any] = []
    bind(
        declare(Transition("go", ["new"], "done", side_effects=[noting(log, "work")], callbacks=[noting(log, "after")]))
    )

    async def twice() -> list[bool]:
        return [await ticket.flow.atransition("go", user=clerk, reason="ready"), await ticket.flow.atransition("go")]

    answers = async_to_sync(twice)()

    assert answers == [True, False]
    assert names(log) == ["work", "after"]
    assert (ticket.state, stored(ticket), moves(ticket)) == ("done", "done", [("new", "done")])
    assert ticket.flow.history.get().actor == clerk


def test_twin_of_a_move_by_target_moves_and_answers() -> None:
    """
    ``await order.atransition_to(target, …)``, on the model and on its process.
    """
    sale = Sale.objects.create()

    async def live() -> list[bool]:
        return [
            await sale.atransition_to("placed", actor="shop", reason="checkout"),
            await sale.atransition_to("placed"),
            await sale.process.atransition_to("processing", actor="shop"),
        ]

    answers = async_to_sync(live)()

    assert answers == [True, False, True]
    assert [(change.to_state, change.actor_label, change.reason) for change in sale.history] == [
        ("placed", "shop", "checkout"),
        ("processing", "shop", ""),
    ]


@pytest.mark.parametrize("name", ["nonsense", "history", "version", "transition_to", "why_not", "tree", "_secret"])
def test_twin_takes_the_name_of_an_action_only(bind: Bind, ticket: Ticket, name: str) -> None:
    """
    What is no action is refused, other attributes of the process included.
    """
    bind(declare(Transition("go", ["new"], "done")))

    with pytest.raises(AttributeError) as caught:
        async_to_sync(ticket.flow.atransition)(name)

    assert isinstance(caught.value, UnknownAction) or name.startswith("_")
    assert stored(ticket) == "new"


def test_refusals_and_errors_reach_async_callers(bind: Bind, ticket: Ticket, clerk: Any) -> None:
    """
    Exceptions, TypeErrors included, come through ``await`` unchanged.
    """
    bind(
        declare(
            Transition("early", ["other"], "done"),
            Transition("guarded", ["new"], "done", permissions=[noting([], answer=False)]),
            Transition("crash", ["new"], "done", side_effects=[noting([], answer=ZeroDivisionError())]),
        )
    )

    for name, keywords, error in (
        ("early", {}, InvalidTransition),
        ("guarded", {"user": clerk}, TransitionForbidden),
        ("crash", {}, ZeroDivisionError),
        ("crash", {"state": 1}, TypeError),
        ("aerly", {}, UnknownAction),
    ):
        with pytest.raises(error):
            async_to_sync(ticket.flow.atransition)(name, **keywords)

    assert (stored(ticket), moves(ticket)) == ("new", [])


def test_sync_call_in_async_code_is_told_so(bind: Bind, ticket: Ticket) -> None:
    """
    Django's own guard speaks, and nothing was written.
    """
    bind(declare(Transition("go", ["new"], "done")))

    async def wrong() -> None:
        ticket.flow.go()

    with pytest.raises(SynchronousOnlyOperation):
        async_to_sync(wrong)()

    assert (stored(ticket), ticket.state, moves(ticket)) == ("new", "new", [])


@commits
def test_many_async_callers_move_once(bind: Bind, ticket: Ticket) -> None:
    """
    Tasks that await the same move at once: one moved it, the others were told it is done.
    """
    log: list[Any] = []
    bind(declare(Transition("go", ["new"], "done", side_effects=[noting(log)])))
    copies = [Ticket.objects.get() for _number in range(5)]

    async def all_at_once() -> list[bool]:
        return list(await asyncio.gather(*(copy.flow.atransition("go") for copy in copies)))

    answers = async_to_sync(all_at_once)()

    assert sorted(answers) == [False] * 4 + [True]
    assert (len(log), moves(ticket)) == (1, [("new", "done")])
