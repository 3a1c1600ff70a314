"""
Offer a scenario of the parcel's process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_logic.testing import Scenario
from tests.app.models import Ticket
from tests.flows import Bind
from tests.testkit.shop import ParcelProcess


@pytest.fixture
def parcels(bind: Bind, process_scenario: Callable[..., Scenario]) -> Scenario:
    """
    Bind the process to tickets and give a scenario of it; within the test's transaction.
    """
    bind(ParcelProcess)
    return process_scenario(ParcelProcess, Ticket, state_field="state")


@pytest.fixture
def committed_parcels(transactional_db: None, parcels: Scenario) -> Any:
    """
    Give the same on a database that commits.
    """
    return parcels
