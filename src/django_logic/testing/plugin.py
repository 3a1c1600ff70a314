"""
The kit as pytest fixtures; pytest itself loads this, before there are settings.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.utils.module_loading import import_string

__all__ = ["clock", "deliver_events", "process_scenario", "race", "run_background"]


@pytest.fixture
def process_scenario(db: None) -> Any:
    """
    Make scenarios: ``process_scenario(OrderProcess, Order, state_field="status")``.
    """
    return import_string("django_logic.testing.Scenario")


@pytest.fixture
def run_background(db: None) -> Any:
    """
    Run the background work that is due, of these queues or of all; returns how many rows ran.
    """
    return import_string("django_logic.testing.run_background")


@pytest.fixture
def deliver_events(db: None) -> Any:
    """
    Deliver the events that are due to the subscribers in Python; returns how many arrived.
    """
    return import_string("django_logic.testing.deliver_events")


@pytest.fixture
def race(transactional_db: None) -> Any:
    """
    Run functions at the same moment, each on connections of its own: `django_logic.testing.race`.
    """
    return import_string("django_logic.testing.race")


@pytest.fixture
def clock(db: None) -> Any:
    """
    Let time pass for the library: ``clock.advance(minutes=10)``.
    """
    return import_string("django_logic.testing.clock")
