"""
Test a process the way it is used: calls, background work, retries and callbacks inline, through the real code.
"""

from __future__ import annotations

from django_logic.testing.clock import advance
from django_logic.testing.driven import DrivenTransitions, record_driven_transitions
from django_logic.testing.driving import deliver_events, run_background
from django_logic.testing.idempotence import assert_idempotent
from django_logic.testing.journey import JourneyStep
from django_logic.testing.matrix import assert_matrix
from django_logic.testing.racing import RaceResult, race
from django_logic.testing.rows import open_transition_message
from django_logic.testing.scenario import ProcessScenario, Scenario, ScenarioMixin
from django_logic.testing.snapshots import from_snapshot, snapshot

__all__ = [
    "DrivenTransitions",
    "JourneyStep",
    "ProcessScenario",
    "RaceResult",
    "Scenario",
    "ScenarioMixin",
    "advance",
    "assert_idempotent",
    "assert_matrix",
    "deliver_events",
    "from_snapshot",
    "open_transition_message",
    "race",
    "record_driven_transitions",
    "run_background",
    "snapshot",
]
