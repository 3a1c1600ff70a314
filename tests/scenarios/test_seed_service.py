"""
Prove that the lesson's service can be said with the slots of a process, compensation included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db.models import F

from django_logic import Transition
from django_logic.exceptions import TransitionNotAllowed
from django_logic.testing import Scenario
from tests.flows import Bind, declare
from tests.scenarios.seed_app.models import Order, OrderEvent, Status, Stock
from tests.scenarios.warehouse import Task, Warehouse, reserved

#: Callbacks depend on a real commit.
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def fulfilment(
    bind: Bind, process_scenario: Callable[..., Scenario], warehouse: Warehouse, tasks: tuple[Task, Task]
) -> Scenario:
    """
    Bind a process that does what ``begin_processing`` does, and give a scenario of it.
    """

    def reserve(instance: Order, context: dict[str, Any]) -> None:
        context["reservation"] = warehouse.reserve(instance.pk)

    def release(instance: Order, context: dict[str, Any], exception: Exception) -> None:
        warehouse.release(context["reservation"])

    def book(instance: Order, context: dict[str, Any]) -> None:
        OrderEvent.objects.create(order=instance, kind="processing_started", reservation=context["reservation"].id)
        Stock.objects.filter(sku__in=instance.skus()).update(reserved=F("reserved") + 1)

    def tell(instance: Order) -> None:
        tasks[0].delay(instance.pk)
        tasks[1].delay("order.processing", instance.pk)

    begin = Transition(
        "begin",
        sources=[Status.PLACED],
        target=Status.PROCESSING,
        prepare=[reserve],
        side_effects=[book],
        callbacks=[tell],
        failure_callbacks=[release],
    )
    return process_scenario(bind(declare(begin, name="fulfilment"), Order, "status"), Order)


def test_service_said_with_slots_does_the_same(
    fulfilment: Scenario, warehouse: Warehouse, tasks: tuple[Task, Task]
) -> None:
    """
    ``prepare`` is the slow work, ``side_effects`` the inside, ``callbacks`` the after.
    """
    order = fulfilment.instance_in("placed")
    stale = Order.objects.get()

    answers = [fulfilment.transition(copy, "begin") for copy in (order, stale)]

    assert answers == [True, False]
    fulfilment.assert_state(order, "processing")
    fulfilment.assert_journey(
        [
            {"action": "begin", "side_effects": ["reserve", "book"], "callbacks": ["tell"]},
            {"action": "begin", "side_effects": [], "callbacks": []},
        ]
    )
    assert (warehouse.held, warehouse.released, reserved()) == (["r1"], [], [1, 1, 0])
    assert [task.sent for task in tasks] == [[(order.pk,)], [("order.processing", order.pk)]]


@pytest.mark.parametrize("how", ["cancelled", "overtaken"])
def test_reservation_is_given_back_when_the_move_is_lost(
    fulfilment: Scenario, warehouse: Warehouse, tasks: tuple[Task, Task], how: str
) -> None:
    """
    When the order was cancelled, or processed by another, while the stock was being reserved, the stock is released.
    """
    order = fulfilment.instance_in("placed")
    reserve, state = warehouse.reserve, "cancelled" if how == "cancelled" else "processing"

    def reserve_slowly(order_id: int) -> Any:
        held = reserve(order_id)
        Order.objects.get(pk=order_id).transition_to(state)
        return held

    warehouse.reserve = reserve_slowly

    if how == "cancelled":
        fulfilment.transition(order, "begin", expect_raises=TransitionNotAllowed)
    else:
        assert fulfilment.transition(order, "begin") is False

    fulfilment.assert_state(order, state)
    fulfilment.assert_journey([{"action": "begin", "side_effects": ["reserve"], "callbacks": []}])
    fulfilment.assert_failure_callbacks_ran(["release"])
    fulfilment.assert_related_count(OrderEvent.objects, 0)
    assert (warehouse.held, warehouse.released, reserved()) == (["r1"], ["r1"], [0, 0, 0])
    assert tasks[0].sent == []
