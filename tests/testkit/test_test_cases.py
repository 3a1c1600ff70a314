"""
Prove that the kit works in Django's own test cases, run by Django's own runner.
"""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

import pytest
from django.test import TestCase

from django_logic.testing import ProcessScenario, ScenarioMixin
from tests.app.models import Ticket
from tests.flows import Bind
from tests.scenarios.seed_app.fulfilment import OrderProcess
from tests.scenarios.seed_app.models import Consignment as Order
from tests.testkit.shop import ParcelProcess
from tests.worker_app import ledger


def outcome_of(case: type[unittest.TestCase]) -> tuple[int, list[str]]:
    """
    Run a test case; return how many tests ran, and the text of each failure.
    """
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    return result.testsRun, [text for _test, text in (*result.failures, *result.errors)]


@pytest.mark.django_db(transaction=True)
def test_example_of_the_manual_passes_as_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    The seed's "Test your process": a whole workflow, background work included, and no service.
    """
    monkeypatch.setenv(ledger.VARIABLE, str(tmp_path / "ledger"))

    class TestOrderFulfilment(ProcessScenario):
        process_class = OrderProcess
        model = Order
        state_field = "status"

        def test_happy_path(self) -> None:
            order = self.create_instance(status="approved")
            self.background_transition(order, "fulfil")
            self.assert_state(order, "fulfilled")
            self.assert_side_effects_ran(["book_courier"])

    assert outcome_of(TestOrderFulfilment) == (1, [])


class Journey(ScenarioMixin):
    """
    Three tests: one that passes, one whose assertion fails, one whose call fails.
    """

    process_class = ParcelProcess
    model = Ticket
    state_field = "state"

    def test_passes(self) -> None:
        """
        A test whose steps begin with itself.
        """
        parcel = self.create_instance(state="packed")
        self.background_transition(parcel, "send")
        self.assert_journey([{"action": "send", "after": "sent", "callbacks": ["tell"]}])

    def test_wrong_state(self) -> None:
        """
        An assertion that fails.
        """
        parcel = self.create_instance()
        self.transition(parcel, "pack")
        self.assert_state(parcel, "sent")

    def test_refusal(self) -> None:
        """
        A call that fails.
        """
        self.transition(self.create_instance(), "look")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("base", [ProcessScenario, TestCase])
def test_failure_tells_the_journey(bind: Bind, base: type[Any]) -> None:
    """
    On a database that commits and in a transaction, the text that a developer reads names every step.
    """
    bind(ParcelProcess)
    case = type("JourneyCase", (Journey, base), {"__module__": __name__})

    count, failures = outcome_of(case)

    refusal, wrong = sorted(failures, key=lambda text: "expected 'sent'" in text)
    assert count == 3
    assert "The state is 'packed', expected 'sent'. Available now: ['send']." in wrong
    assert "1. call pack: 'new' -> 'packed'; side effects reserve; callbacks tell" in wrong
    assert "InvalidTransition: ParcelProcess.look refused" in refusal
    assert "1. call look: 'new' -> 'new'; let out InvalidTransition" in refusal
