"""
Prove that the code of the workflow lesson runs as it is written there, and keeps what the lesson promises.

Its outbox is played with a callback here; events of the library's own are a later chapter.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.utils.functional import SimpleLazyObject

from django_logic.exceptions import InvalidTransition
from tests.flows import moves, stored
from tests.scenarios.seed_app.models import (
    HandmadeOrder,
    Order,
    OutboxMessage,
    Payment,
    Status,
    StatusChange,
)

pytestmark = pytest.mark.django_db


#: Marks what depends on a real commit: callbacks, threads, the fast path outside any transaction.
commits = pytest.mark.django_db(transaction=True)


@commits
def test_the_only_way_status_changes(rf: RequestFactory, clerk: Any) -> None:
    """
    ``order.transition_to(Status.PLACED, actor=request.user)`` in a view moves, records the person, and repeats quietly.
    """
    order = Order.objects.create()

    def place(request: HttpRequest) -> HttpResponse:
        moved = order.transition_to(Status.PLACED, actor=request.user)  # the only way status changes
        return HttpResponse(str(moved))

    request = rf.post("/orders/88/place")
    request.user = SimpleLazyObject(lambda: clerk)
    answers = [place(request).content, place(request).content]

    assert answers == [b"True", b"False"]
    assert stored(order, "status") == "placed"
    assert [(change.from_state, change.to_state, change.actor) for change in order.history] == [
        ("draft", "placed", clerk)
    ]


@pytest.mark.parametrize("source", list(Status))
@pytest.mark.parametrize("target", list(Status))
def test_every_edge_of_the_table_and_no_other_can_be_moved(source: Status, target: Status) -> None:
    """
    Along an edge the order moves, to where it is nothing happens, everything else is refused.
    """
    order = Order.objects.create(status=source)
    drawn = target in Order.TRANSITIONS[source]

    assert order.can_transition_to(target) is drawn
    if source == target or drawn:
        assert order.transition_to(target) is drawn
    else:
        with pytest.raises(InvalidTransition) as caught:
            order.transition_to(target)
        assert f"Order {order.pk}" in str(caught.value)
        assert f"{source.value} → {target.value}" in str(caught.value)
        assert caught.value.http_status == 409

    assert stored(order, "status") == order.status == (target if drawn else source)
    assert moves(order, "process") == ([(source, target)] if drawn else [])


@pytest.mark.parametrize("end", ["succeeded", "failed"])
def test_payment_moves_along_its_own_table(end: str) -> None:
    """
    The lesson's payment: pending, processing, then one of two ends from which nothing leads back.
    """
    payment = Payment.objects.create()

    assert [payment.transition_to("processing"), payment.transition_to(end)] == [True, True]
    for target in {"pending", "processing", "succeeded", "failed"} - {end}:
        with pytest.raises(InvalidTransition, match=f"{end} → {target}"):
            payment.transition_to(target)

    assert stored(payment) == end
    assert payment.history.count() == 2


def test_value_set_is_kept_by_the_database() -> None:
    """
    ``choices`` stops no ``update()``; the lesson's check constraint does.
    """
    order = Order.objects.create()

    with pytest.raises(IntegrityError), transaction.atomic():
        Order.objects.filter(pk=order.pk).update(status="shipped")
    with pytest.raises(IntegrityError), transaction.atomic():
        Order.objects.create(status="shipped")

    assert stored(order, "status") == "draft"


def test_direct_assignment_along_no_edge_is_refused_by_the_database() -> None:
    """
    The lesson's wrong example, a view and a task that assign the field: the task's move from cancelled fails at last.
    """
    order = Order.objects.create()

    # in a view
    order.status = "cancelled"
    order.save()
    # in a task, three months later
    order.status = "processing"  # from cancelled. Something stops it.
    with pytest.raises(IntegrityError), transaction.atomic():
        order.save()

    assert stored(order, "status") == "cancelled"


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
