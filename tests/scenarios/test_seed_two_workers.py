"""
Prove the second part of the workflow lesson: two workers, one row, and what belongs inside the transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F

from django_logic.exceptions import TransitionTemporarilyUnavailable
from django_logic.testing import Scenario
from tests.scenarios.seed_app.models import Order, OrderEvent, Stock
from tests.scenarios.warehouse import Task, Warehouse, reserved

pytestmark = pytest.mark.django_db


#: Marks what depends on a real commit: callbacks, threads, the fast path outside any transaction.
commits = pytest.mark.django_db(transaction=True)


def begin_processing(order_id: int, warehouse: Warehouse, tasks: tuple[Task, Task], *, actor: Any = None) -> bool:
    """
    Begin to process an order, as the lesson does; only the assignment became a call of ``transition_to``.
    """
    send_processing_email, publish_event = tasks
    # 1. SLOW WORK FIRST, outside any transaction. A provider call inside
    #    the block below would hold the row lock for their p99, turning a
    #    slow dependency into database contention for everyone.
    reservation = warehouse.reserve(order_id)  # HTTP, ~300 ms

    with transaction.atomic():
        # 2. Lock and RE-READ. The re-read is the point: a worker that
        #    waited here now sees whatever the winner wrote.
        order = Order.objects.select_for_update().get(pk=order_id)

        if not order.can_transition_to(Order.Status.PROCESSING):
            # Already processing, or cancelled while we were reserving stock.
            warehouse.release(reservation)  # compensate the slow work
            return False

        order.transition_to(Order.Status.PROCESSING, actor=actor)

        # 3. Everything that must be consistent with the status goes INSIDE.
        OrderEvent.objects.create(order=order, kind="processing_started", actor=actor, reservation=reservation.id)
        Stock.objects.filter(sku__in=order.skus()).update(reserved=F("reserved") + 1)

        # 4. Everything irreversible goes AFTER the commit. An email sent
        #    inside a transaction that later rolls back cannot be recalled,
        #    and a task enqueued here can outrun its own row.
        transaction.on_commit(lambda: send_processing_email.delay(order.id))
        transaction.on_commit(lambda: publish_event.delay("order.processing", order.id))

    return True


@commits
def test_order_is_processed_once_and_everything_agrees(
    orders: Scenario, warehouse: Warehouse, tasks: tuple[Task, Task]
) -> None:
    """
    The lesson's service: slow work outside, consistent work inside, irreversible work after the commit; then no more.
    """
    order = orders.create_instance(status="placed")

    answers = [begin_processing(order.pk, warehouse, tasks, actor="worker a") for _ in range(2)]

    assert answers == [True, False]
    assert warehouse.during_transaction == [False, False]
    assert (warehouse.held, warehouse.released) == (["r1", "r2"], ["r2"])
    orders.assert_state(order, "processing")
    orders.assert_history(order, [("placed", "processing", "worker a")])
    assert list(OrderEvent.objects.values_list("kind", "actor", "reservation")) == [
        ("processing_started", "worker a", "r1")
    ]
    assert reserved() == [1, 1, 0]
    assert [task.sent for task in tasks] == [[(order.pk,)], [("order.processing", order.pk)]]


@commits
def test_rolled_back_order_tells_nobody(orders: Scenario, warehouse: Warehouse, tasks: tuple[Task, Task]) -> None:
    """
    When the caller's work fails after the move, status, history, event and stock go back and no task was enqueued.
    """
    order = orders.create_instance(status="placed")

    with transaction.atomic():
        begin_processing(order.pk, warehouse, tasks)
        transaction.set_rollback(True)

    orders.assert_state(order, "placed")
    orders.assert_history(order, [])
    orders.assert_related_count(OrderEvent.objects, 0)
    assert (reserved(), [task.sent for task in tasks]) == ([0, 0, 0], [[], []])


@commits
def test_two_workers_take_the_same_order_and_it_ships_once(
    orders: Scenario, warehouse: Warehouse, tasks: tuple[Task, Task], race: Callable[..., Any]
) -> None:
    """
    The loser waits, re-reads and withdraws; on SQLite, which locks no rows, he may be told to come back instead.
    """
    order = orders.create_instance(status="placed")

    answers = [each.answer for each in race(*[lambda: begin_processing(order.pk, warehouse, tasks)] * 2)]

    assert answers.count(True) == 1
    loser = next(answer for answer in answers if answer is not True)
    assert loser is False or (connection.vendor == "sqlite" and isinstance(loser, TransitionTemporarilyUnavailable))
    orders.assert_history(order, [("placed", "processing", None)])
    orders.assert_related_count(OrderEvent.objects, 1)
    assert (reserved(), tasks[0].sent) == ([1, 1, 0], [(order.pk,)])


def test_lock_and_read_in_one_statement(orders: Scenario) -> None:
    """
    The lesson's better example.
    """
    pk = orders.create_instance(status="placed").pk

    with transaction.atomic():
        order = Order.objects.select_for_update().get(pk=pk)  # lock AND read
        moved = order.transition_to(Order.Status.PROCESSING)

    assert moved is True
    orders.assert_state(order, "processing")


def test_lock_without_reading_again_does_no_harm(orders: Scenario) -> None:
    """
    The lesson's wrong example: the object was read before the lock and another worker came between; the call re-reads.
    """
    pk = orders.create_instance(status="placed").pk

    order = Order.objects.get(pk=pk)  # read BEFORE the lock
    Order.objects.get(pk=pk).transition_to("processing")
    with transaction.atomic():
        Order.objects.select_for_update().filter(pk=pk).exists()  # "lock"
        moved = order.transition_to(Order.Status.PROCESSING)  # checks the STALE object

    assert moved is False
    assert order.status == "processing"
    orders.assert_history(order, [("placed", "processing", None)])


def test_optimistic_update_is_the_write_and_the_check(orders: Scenario) -> None:
    """
    The lesson's conditional ``update()`` passes the database's guard along an edge, once.
    """
    order = orders.create_instance(status="placed")

    counts = [Order.objects.filter(pk=order.pk, status="placed").update(status="processing") for _ in range(2)]

    assert counts == [1, 0]
    orders.assert_state(order, "processing")
