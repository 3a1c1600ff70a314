"""
Prove that the lesson's service can be said with the slots of a process, compensation included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from django_logic import Process, ProcessManager, Transition
from django_logic.exceptions import TransitionNotAllowed
from tests.flows import stored
from tests.scenarios.seed_app.models import (
    Order,
    OrderEvent,
    Status,
    Stock,
)

pytestmark = pytest.mark.django_db


#: Marks what depends on a real commit: callbacks, threads, the fast path outside any transaction.
commits = pytest.mark.django_db(transaction=True)


class Warehouse:
    """
    Play the remote service: it is slow, it is outside, it must be told of what was given up.
    """

    def __init__(self) -> None:
        self.held: list[str] = []
        self.released: list[str] = []
        self.during_transaction: list[bool] = []

    def reserve(self, order_id: int) -> Any:
        """
        Reserve, over the network.
        """
        self.during_transaction.append(connection.in_atomic_block)
        self.held.append(f"r{len(self.held) + 1}")
        return type("Reservation", (), {"id": self.held[-1]})()

    def release(self, reservation: Any) -> None:
        """
        Give back.
        """
        self.released.append(reservation.id)


class Task:
    """
    Play a task queue that notes what was enqueued and whether the row was durable by then.
    """

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def delay(self, *arguments: Any) -> None:
        """
        Enqueue.
        """
        assert not connection.in_atomic_block
        self.sent.append(arguments)


@pytest.fixture
def warehouse() -> Warehouse:
    """
    Give a warehouse, and stock to reserve.
    """
    Stock.objects.bulk_create([Stock(sku="A1"), Stock(sku="B2"), Stock(sku="C3")])
    return Warehouse()


@pytest.fixture
def tasks() -> tuple[Task, Task]:
    """
    Give the two tasks of the lesson: send_processing_email, publish_event.
    """
    return Task(), Task()


def reserved() -> list[int]:
    """
    Return how much of each stock is reserved.
    """
    return list(Stock.objects.order_by("sku").values_list("reserved", flat=True))


@pytest.fixture
def fulfilment(warehouse: Warehouse, tasks: tuple[Task, Task]) -> Iterator[None]:
    """
    Bind a process that does what ``begin_processing`` does.
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

    process = type(
        "FulfilmentProcess",
        (Process,),
        {
            "process_name": "fulfilment",
            "transitions": [
                Transition(
                    "begin",
                    sources=[Status.PLACED],
                    target=Status.PROCESSING,
                    prepare=[reserve],
                    side_effects=[book],
                    callbacks=[tell],
                    failure_callbacks=[release],
                )
            ],
        },
    )
    ProcessManager.bind_model_process(Order, process, state_field="status")
    yield
    ProcessManager.unbind_model_process(Order, process)


@commits
def test_service_said_with_slots_does_the_same(
    fulfilment: None, warehouse: Warehouse, tasks: tuple[Task, Task]
) -> None:
    """
    ``prepare`` is the slow work, ``side_effects`` the inside, ``callbacks`` the after.
    """
    order = Order.objects.create(status="placed")
    stale = Order.objects.get()

    answers = [order.fulfilment.begin(), stale.fulfilment.begin()]

    assert answers == [True, False]
    assert (warehouse.held, warehouse.released) == (["r1"], [])
    assert (stored(order, "status"), reserved()) == ("processing", [1, 1, 0])
    assert [task.sent for task in tasks] == [[(order.pk,)], [("order.processing", order.pk)]]


@commits
@pytest.mark.parametrize("how", ["cancelled", "overtaken"])
def test_reservation_is_given_back_when_the_move_is_lost(
    fulfilment: None, warehouse: Warehouse, tasks: tuple[Task, Task], how: str
) -> None:
    """
    When the order was cancelled, or processed by another, while the stock was being reserved, the stock is released.
    """
    order = Order.objects.create(status="placed")
    reserve = warehouse.reserve

    def reserve_slowly(order_id: int) -> Any:
        held = reserve(order_id)
        Order.objects.get(pk=order_id).transition_to("cancelled" if how == "cancelled" else "processing")
        return held

    warehouse.reserve = reserve_slowly

    if how == "cancelled":
        with pytest.raises(TransitionNotAllowed):
            order.fulfilment.begin()
    else:
        assert order.fulfilment.begin() is False

    assert (warehouse.held, warehouse.released) == (["r1"], ["r1"])
    assert (stored(order, "status"), reserved()) == ("cancelled" if how == "cancelled" else "processing", [0, 0, 0])
    assert OrderEvent.objects.count() == 0
    assert tasks[0].sent == []
