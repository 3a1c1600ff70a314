"""
Prove that the code of the workflow lesson runs as it is written there, and keeps what the lesson promises.

Its outbox is played with a callback here; events of the library's own are a later chapter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.utils.functional import SimpleLazyObject

from django_logic.exceptions import InvalidTransition
from django_logic.testing import Scenario, assert_matrix
from tests.scenarios.seed_app.models import HandmadeOrder, Order, OutboxMessage, Payment, Status, StatusChange

pytestmark = pytest.mark.django_db


#: Marks what depends on a real commit: callbacks, threads, the fast path outside any transaction.
commits = pytest.mark.django_db(transaction=True)


@commits
def test_the_only_way_status_changes(orders: Scenario, rf: RequestFactory, clerk: Any) -> None:
    """
    ``order.transition_to(Status.PLACED, actor=request.user)`` in a view moves, records the person, and repeats quietly.
    """
    order = orders.create_instance()

    def place(request: HttpRequest) -> HttpResponse:
        moved = order.transition_to(Status.PLACED, actor=request.user)  # the only way status changes
        return HttpResponse(str(moved))

    request = rf.post("/orders/88/place")
    request.user = SimpleLazyObject(lambda: clerk)
    answers = [place(request).content, place(request).content]

    assert answers == [b"True", b"False"]
    orders.assert_state(order, "placed")
    orders.assert_history(order, [("draft", "placed", clerk)])
    assert order.history.get().actor == clerk


@pytest.mark.parametrize("source", list(Status))
@pytest.mark.parametrize("target", list(Status))
def test_every_edge_of_the_table_and_no_other_can_be_moved(orders: Scenario, source: Status, target: Status) -> None:
    """
    Along an edge the order moves, to where it is nothing happens, everything else is refused.
    """
    order = orders.create_instance(status=source)
    drawn = target in Order.TRANSITIONS[source]

    assert order.can_transition_to(target) is drawn
    if source == target or drawn:
        assert orders.transition_to(order, target) is drawn
    else:
        orders.transition_to(order, target, expect_raises=InvalidTransition)
        orders.assert_raised(match=f"Order {order.pk}")
        assert orders.assert_raised(match=f"{source.value} → {target.value}").http_status == 409

    assert order.status == (target if drawn else source)
    orders.assert_state(order, target if drawn else source)
    orders.assert_history(order, [(source, target, None)] if drawn else [])


@commits
def test_process_and_database_draw_the_same_edges() -> None:
    """
    What the table of the order compiles to, and what the trigger lets pass, are the same moves.
    """
    assert_matrix(type(Order().process), Order)
    assert_matrix(type(Payment().process), Payment, database=False)


@pytest.mark.parametrize("end", ["succeeded", "failed"])
def test_payment_moves_along_its_own_table(process_scenario: Callable[..., Scenario], end: str) -> None:
    """
    The lesson's payment: pending, processing, then one of two ends from which nothing leads back.
    """
    payments = process_scenario(type(Payment().process), Payment, state_field="state")
    payment = payments.create_instance()

    assert [payments.transition_to(payment, target) for target in ("processing", end)] == [True, True]
    for target in {"pending", "processing", "succeeded", "failed"} - {end}:
        payments.transition_to(payment, target, expect_raises=InvalidTransition)
        payments.assert_raised(match=f"{end} → {target}")

    payments.assert_state(payment, end)
    payments.assert_history(payment, [("pending", "processing", None), ("processing", end, None)])


def test_value_set_is_kept_by_the_database(orders: Scenario) -> None:
    """
    ``choices`` stops no ``update()``; the lesson's check constraint does.
    """
    order = orders.create_instance()

    with pytest.raises(IntegrityError), transaction.atomic():
        Order.objects.filter(pk=order.pk).update(status="shipped")
    with pytest.raises(IntegrityError), transaction.atomic():
        Order.objects.create(status="shipped")

    orders.assert_state(order, "draft")


def test_direct_assignment_along_no_edge_is_refused_by_the_database(orders: Scenario) -> None:
    """
    The lesson's wrong example, a view and a task that assign the field: the task's move from cancelled fails at last.
    """
    order = orders.create_instance()

    # in a view
    order.status = "cancelled"
    order.save()
    # in a task, three months later
    order.status = "processing"  # from cancelled. Something stops it.
    with pytest.raises(IntegrityError), transaction.atomic():
        order.save()

    orders.assert_state(order, "cancelled")


@commits
def test_handmade_machine_of_the_lesson_runs_under_the_databases_guard() -> None:
    """
    The lesson's own ``transition_to`` works as written, and what goes round it is refused by the constraint.
    """
    order = HandmadeOrder.objects.create()
    stale = HandmadeOrder.objects.get()
    HandmadeOrder.published.clear()

    answers = [
        order.transition_to("placed", actor="ann", reason="checkout"),
        order.transition_to("placed"),
        stale.transition_to("cancelled"),
    ]
    with pytest.raises(InvalidTransition, match="placed → draft"):
        order.transition_to("draft")
    with pytest.raises(IntegrityError), transaction.atomic():
        HandmadeOrder.objects.update(status="draft")
    with pytest.raises(IntegrityError), transaction.atomic():
        HandmadeOrder.objects.create(status="fulfilled")

    assert answers == [True, False, False]
    assert list(StatusChange.objects.values_list("from_state", "to_state", "actor", "reason")) == [
        ("draft", "placed", "ann", "checkout")
    ]
    assert list(OutboxMessage.objects.values_list("topic", flat=True)) == ["order.placed"]
    assert HandmadeOrder.published == ["placed"]
