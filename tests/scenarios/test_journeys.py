"""
Tell the manual's order from approval to the customer, as a test of a project would: with the library's own kit.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.test import TestCase

from django_logic.background import PermanentFailure
from django_logic.exceptions import TransitionTemporarilyUnavailable
from django_logic.testing import ProcessScenario, ScenarioMixin, advance, record_driven_transitions, run_background
from tests.scenarios.seed_app.fulfilment import CustomsRefusal, OrderProcess
from tests.scenarios.seed_app.models import Booking, Consignment

#: Where the hooks write down what they did.
pytestmark = pytest.mark.usefixtures("ledger")


class Journeys(ScenarioMixin):
    """
    Hold the journeys, to be run on a database that commits and within a transaction.
    """

    process_class = OrderProcess
    model = Consignment

    def approved(self) -> Any:
        """
        Give an order that went the way to its approval.
        """
        order = self.create_instance()
        self.transition(order, "approve", actor="sales")
        return order

    def test_order_reaches_the_customer(self) -> None:
        """
        Approval, courier, labels, mail: in this order, each once.
        """
        order = self.approved()

        self.background_transition(order, "fulfil", actor="sales")

        self.assert_state(order, "fulfilled")
        self.assert_side_effects_ran(["book_courier", "print_labels"])
        self.assert_callbacks_ran(["send_tracking_email"])
        self.assert_history(
            order,
            [
                ("draft", "approved", "sales"),
                ("approved", "fulfilling", "sales"),
                ("fulfilling", "fulfilled", "sales"),
            ],
        )
        self.assert_related_count(Booking.objects.filter(consignment_id=order.pk), 1)

    def test_printer_that_jams_books_no_second_courier(self) -> None:
        """
        The attempt that failed is undone, its booking with it; the next one starts over.
        """
        order = self.approved()

        self.background_transition(order, "fulfil", fail_side_effect="print_labels", fail_with=OSError("jam"))
        self.assert_state(order, "fulfilling")
        self.assert_side_effects_ran(["book_courier"])
        self.assert_related_count(Booking.objects, 0)
        self.assert_error_recorded(order, "OSError: jam")
        assert run_background() == 0

        advance(minutes=3)
        assert run_background() == 2

        self.assert_state(order, "fulfilled")
        self.assert_error_count(order, 1)
        self.assert_related_count(Booking.objects, 1)

    def test_order_that_cannot_be_sent_is_told_at_once(self) -> None:
        """
        What a retry can't help, listed or permanent, costs one attempt; the customer is called.
        """
        for error in (CustomsRefusal("not over there"), PermanentFailure("no such country")):
            order = self.approved()

            self.background_transition(order, "fulfil_or_call", fail_side_effect="book_courier", fail_with=error)

            self.assert_state(order, "fulfilment_failed")
            self.assert_failure_callbacks_ran(["call_customer"])
            self.assert_raised(type(error))
            self.assert_error_count(order, 1)

    def test_follow_up_begins_after_the_order_is_done(self) -> None:
        """
        A callback starts the next background work, which is part of the same journey.
        """
        order = self.approved()

        self.background_transition(order, "fulfil_or_call")

        self.assert_callbacks_ran(["start_follow_up"])
        self.assert_state_trace(["fulfilling", "fulfilled"])
        self.assert_transition_owner(
            order, "tests.scenarios.seed_app.fulfilment.OrderProcess", transition_name="remind"
        )
        self.assert_related_count(Booking.objects, 2)

    def test_order_is_not_cancelled_while_work_is_open(self) -> None:
        """
        The way is free again when the work has ended.
        """
        order = self.approved()
        self.background_transition(order, "fulfil", fail_side_effect="book_courier")

        self.transition(order, "cancel", expect_raises=TransitionTemporarilyUnavailable)
        self.assert_refused(order, "cancel", "background_in_flight")
        self.retry_transition(order)

        self.assert_not_available(order, ["cancel"])
        self.assert_journey(
            [
                {"action": "approve", "after": "approved"},
                {"action": "fulfil", "after": "fulfilling", "failed": True},
                {"action": "cancel", "before": "fulfilling", "after": "fulfilling"},
                {"action": "fulfil", "after": "fulfilled", "callbacks": ["send_tracking_email"]},
            ]
        )

    def test_every_action_of_the_process_is_driven_once(self) -> None:
        """
        Whoever adds an action is told to write its journey.
        """
        with record_driven_transitions() as driven:
            order = self.approved()
            self.background_transition(order, "remind")
            self.background_transition(order, "fulfil")
            self.transition(self.approved(), "cancel")
            self.background_transition(self.approved(), "fulfil_or_call")

        assert driven.undriven(OrderProcess) == []


class TestJourneysThatCommit(Journeys, ProcessScenario):
    """
    After-commit work runs after the commit.
    """


class TestJourneysInATransaction(Journeys, TestCase):
    """
    After-commit work runs when the call returns.
    """


del Journeys
