"""
Try on ourselves what was reported beside the state machines: web, events, history, async; threads in the docstrings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import IntegrityError, transaction

from django_logic import Action, ProcessManager, Transition
from django_logic.bulk import bulk_transition
from django_logic.exceptions import InvalidTransition, TransitionForbidden, TransitionTemporarilyUnavailable
from django_logic.models import StatusChange
from django_logic.testing import Scenario
from tests.app.models import Ticket
from tests.flows import noting
from tests.scenarios.seed_app.models import Order

pytestmark = pytest.mark.django_db


#: Marks what depends on a real commit: callbacks, threads, the fast path outside any transaction.
commits = pytest.mark.django_db(transaction=True)

Scenarios = Callable[..., Scenario]
PAY = Transition("pay", ["new"], "paid")


@commits
def test_two_different_moves_from_one_state_leave_no_impossible_edge(
    tickets_with: Scenarios, race: Callable[..., Any]
) -> None:
    """
    Archive and activate race from one state: one is made, the other refused (django-logic#86).
    """
    tickets = tickets_with(Transition("archive", ["new"], "archived"), Transition("activate", ["new"], "active"))
    ticket = tickets.create_instance()

    def call(action: str) -> Callable[[], Any]:
        return lambda: getattr(Ticket.objects.get(pk=ticket.pk).flow, action)()

    answers = [each.answer for each in race(call("archive"), call("activate"))]

    assert answers.count(True) == 1
    assert isinstance(next(answer for answer in answers if answer is not True), InvalidTransition)
    ticket.refresh_from_db()
    tickets.assert_history(ticket, [("new", ticket.state, None)])


def test_task_without_a_user_runs_what_a_person_may_not(tickets_with: Scenarios, clerk: Any) -> None:
    """
    Commands and tasks say so by passing nobody; what they did is recorded as the system's (viewflow#497).
    """
    tickets = tickets_with(Transition("expire", ["new"], "expired", permissions=[lambda instance, user: False]))
    ticket = tickets.create_instance()

    tickets.transition(ticket, "expire", user=clerk, expect_raises=TransitionForbidden)

    assert tickets.transition(ticket, "expire", actor="nightly job") is True
    tickets.assert_history(ticket, [("new", "expired", "nightly job")])
    assert ticket.flow.history.get().actor_id == ""


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_records_go_to_the_database_of_the_object(tickets_with: Scenarios) -> None:
    """
    Nothing is written on the default alias for an object of another one (django-jaiminho#251).
    """
    tickets = tickets_with(Transition("pay", ["new"], "paid", side_effects=[noting([])]))
    ticket = Ticket.objects.using("other").create()

    tickets.transition(ticket, "pay")

    tickets.assert_related_count(Ticket.objects.using("other").filter(state="paid"), 1)
    tickets.assert_related_count(StatusChange.objects.using("other"), 1)
    tickets.assert_related_count(StatusChange.objects.using("default"), 0)


def test_bulk_leaves_a_record_for_each_object_and_a_bare_update_is_caught(orders: Scenario) -> None:
    """
    The library's way of moving many writes history; ``update()`` along no edge is refused (django-simple-history#174).
    """
    made = [orders.create_instance() for _number in range(3)]

    result = bulk_transition(Order.objects.all(), "to_placed", actor="import")
    with pytest.raises(IntegrityError), transaction.atomic():
        Order.objects.update(status="draft")

    assert result.moved == 3
    for order in made:
        orders.assert_history(order, [("draft", "placed", "import")])


def test_birth_and_source_are_on_record(tickets_with: Scenarios) -> None:
    """
    Where asked for, the first row tells the birth, its source empty; every row has source and target (fsm-log#36, #37).
    """
    tickets = tickets_with(PAY, record_initial_state=True)

    ticket = tickets.create_instance()
    tickets.transition(ticket, "pay")

    tickets.assert_history(ticket, [(None, "new", None), ("new", "paid", None)])
    assert (ticket.flow.version, ticket.process.version) == (2, 0)


def test_wrong_state_is_a_conflict_with_its_alternatives(orders: Scenario) -> None:
    """
    A web layer gets 409, the present state and what is possible from the exception alone (django-rest-framework#2847).
    """
    order = orders.create_instance(status="processing")

    orders.transition_to(order, "placed", expect_raises=InvalidTransition)

    error = orders.assert_raised()
    assert (error.http_status, error.reason, error.current_state) == (409, "source_state", "processing")
    assert error.available_actions == ["to_cancelled", "to_fulfilled"]


def test_async_code_moves_and_sync_calls_in_it_are_told_so(tickets_with: Scenarios) -> None:
    """
    The async twin works from an event loop; the sync call gives Django's clear error (django-fsm-2#138, psm#446).
    """
    tickets = tickets_with(PAY)
    ticket = tickets.create_instance()

    async def view() -> bool:
        with pytest.raises(SynchronousOnlyOperation):
            ticket.flow.pay()
        return await ticket.flow.atransition("pay")

    assert async_to_sync(view)() is True
    tickets.assert_history(ticket, [("new", "paid", None)])


@commits
def test_work_whose_unit_is_not_the_row_is_not_queued_behind_it(tickets_with: Scenarios, settings: Any) -> None:
    """
    Unrelated work on a busy object runs with ``lock="none"``; a held object is told, never silently dropped
    (django-logic#281, #282).
    """
    settings.DEBUG = True

    def meanwhile(instance: Ticket, **keywords: Any) -> None:
        copy = Ticket.objects.get(pk=instance.pk)
        assert copy.flow.post(parcel=1) is True
        with pytest.raises(TransitionTemporarilyUnavailable) as caught:
            copy.flow.sync()
        assert (caught.value.reason, caught.value.http_status) == ("locked", 503)

    tickets = tickets_with(
        Transition("close", ["new"], "closed", lock="cache", side_effects=[meanwhile]),
        Action("sync", ["new"], lock="cache", side_effects=[noting([], "sync")]),
        Action("post", "*", lock="none", side_effects=[noting([], "post")]),
    )
    ticket = tickets.create_instance()

    assert tickets.transition(ticket, "close") is True

    tickets.assert_journey([{"action": "close", "after": "closed", "side_effects": ["post", "meanwhile"]}])


@commits
def test_callers_of_a_held_row_wait_and_all_get_their_turn(tickets_with: Scenarios, race: Callable[..., Any]) -> None:
    """
    With the row lock, unrelated actions of one object wait for each other; none is dropped (django-logic#281).
    """
    log: list[Any] = []
    tickets = tickets_with(Action("write_back", ["new"], side_effects=[noting(log, "write_back")]))
    ticket = tickets.create_instance()

    def call(number: int) -> Callable[[], Any]:
        return lambda: Ticket.objects.get(pk=ticket.pk).flow.write_back(number=number)

    answers = [each.answer for each in race(*map(call, range(5)))]

    assert answers == [True] * 5
    assert sorted(entry[2]["number"] for entry in log) == [0, 1, 2, 3, 4]


def test_page_of_possible_actions_does_not_grow_with_the_page(
    tickets_with: Scenarios, django_assert_num_queries: Any
) -> None:
    """
    Finding what a user may do costs the same for one object and for many (river#36, #90).
    """
    tickets = tickets_with(PAY, Transition("ship", ["paid"], "sent"))
    for number in range(20):
        tickets.create_instance(state=("new", "paid")[number % 2])

    with django_assert_num_queries(1):
        listed = ProcessManager.available_actions(Ticket.objects.order_by("pk"), process_name="flow")

    assert list(listed.values()) == [["pay"], ["ship"]] * 10
