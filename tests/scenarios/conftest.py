"""
Offer the stories' subjects, each with a scenario of its process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_logic import Transition
from django_logic.testing import Scenario
from tests.app.models import Ticket
from tests.flows import Bind, declare
from tests.scenarios.seed_app.fulfilment import OrderProcess
from tests.scenarios.seed_app.models import Consignment, Order, Stock
from tests.scenarios.warehouse import Task, Warehouse
from tests.worker.conftest import closed_gate, ledger

#: The ledger and the gate of the tests of worker processes serve the chapters on workers as well.
__all__ = ["closed_gate", "ledger"]

Scenarios = Callable[..., Scenario]


@pytest.fixture
def tickets_with(bind: Bind, process_scenario: Scenarios) -> Scenarios:
    """
    Give a function that declares transitions of a ticket for one test and returns a scenario of them.
    """

    def declared(*transitions: Transition, **attributes: Any) -> Scenario:
        return process_scenario(bind(declare(*transitions, **attributes)), Ticket, state_field="state")

    return declared


@pytest.fixture
def orders(process_scenario: Scenarios) -> Scenario:
    """
    Give a scenario of the lesson's orders, whose process is made from their table.
    """
    return process_scenario(type(Order().process), Order)


@pytest.fixture
def consignments(process_scenario: Scenarios) -> Scenario:
    """
    Give a scenario of the manual's orders as its chapter on background transitions has them.
    """
    return process_scenario(OrderProcess, Consignment)


@pytest.fixture
def order(consignments: Scenario) -> Any:
    """
    Give one of these that was approved.
    """
    order = consignments.create_instance()
    consignments.transition(order, "approve")
    return order


@pytest.fixture
def warehouse(db: None) -> Warehouse:
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
