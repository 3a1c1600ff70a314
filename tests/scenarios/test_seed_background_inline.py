"""
Prove what the manual's chapter on background transitions says of calls, rows and safety nets; no worker is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from django_logic import conf
from django_logic.background import BackgroundTransition, PermanentFailure
from django_logic.background.models import TransitionMessage
from django_logic.background.safety_nets import cleanup_completed_transitions, detect_stuck_transitions
from django_logic.exceptions import AlreadyInProgress, TransitionNotAllowed, TransitionTemporarilyUnavailable
from django_logic.testing import Scenario, open_transition_message
from tests.scenarios.seed_app.models import Consignment
from tests.scenarios.told import told
from tests.worker.harness import row
from tests.worker_app.ledger import Ledger

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ledger")]

APPROVED = ("draft", "approved", None)
ACCEPTED = ("approved", "fulfilling", None)


def fail_once(consignments: Scenario, order: Consignment, error: Exception) -> None:
    """
    Have an order's first attempt fail at the printer, after a courier was booked.
    """
    consignments.background_transition(order, "fulfil", fail_side_effect="print_labels", fail_with=error)


class TestBackgroundTransitions:
    """
    "BackgroundTransition runs its side-effects on a worker process, and retries them."
    """

    def test_call_writes_busy_state_and_one_row_and_returns(
        self, consignments: Scenario, order: Consignment, ledger: Ledger
    ) -> None:
        """
        The call writes in_progress_state and one TransitionMessage row in a single transaction, then returns.
        """
        returned = order.process.fulfil()

        message = TransitionMessage.objects.get()
        assert returned is True
        consignments.assert_state(order, "fulfilling")
        consignments.assert_history(order, [APPROVED, ACCEPTED])
        assert (message.is_completed, message.queue_name, message.timeout_seconds) == (
            False,
            "django_logic.critical",
            600,
        )
        assert ledger.entries() == []

    def test_row_and_busy_state_roll_back_together(self, consignments: Scenario, order: Consignment) -> None:
        """
        A single transaction: what undoes one undoes the other.
        """
        with transaction.atomic():
            order.process.fulfil()
            transaction.set_rollback(True)

        consignments.assert_state(order, "approved")
        consignments.assert_history(order, [APPROVED])
        consignments.assert_related_count(TransitionMessage.objects, 0)

    def test_open_row_keeps_other_transitions_out(self, consignments: Scenario, order: Consignment) -> None:
        """
        A second background transition raises AlreadyInProgress, a synchronous one TransitionTemporarilyUnavailable.
        """
        order.process.fulfil()

        consignments.background_transition(order, "fulfil", expect_raises=AlreadyInProgress)
        consignments.transition(order, "cancel", expect_raises=TransitionTemporarilyUnavailable)

        busy = consignments.assert_raised(TransitionNotAllowed)
        assert not isinstance(busy, AlreadyInProgress)
        consignments.assert_refused(order, "cancel", "background_in_flight")
        consignments.assert_state(order, "fulfilling")
        consignments.assert_related_count(TransitionMessage.objects, 1)


class TestSeeWhatIsNotMoving:
    """
    "dl_transitions lists every uncompleted background transition and says why each one is not moving."
    """

    def test_row_says_that_no_worker_serves_its_queue(self, order: Consignment) -> None:
        """
        No worker serves its queue.
        """
        order.process.fulfil()

        assert "no_worker_for_queue" in told()

    def test_send_runs_no_side_effects_itself(
        self, consignments: Scenario, order: Consignment, run_background: Callable[..., int], ledger: Ledger
    ) -> None:
        """
        The command runs no side-effects itself; it makes the row due.
        """
        fail_once(consignments, order, ConnectionError("outage"))
        assert run_background() == 0

        told("--send", str(row(order).pk))

        assert ledger.count("book_courier") == 1
        assert row(order).run_at <= timezone.now() + timedelta(seconds=1)
        run_background()
        consignments.assert_state(order, "fulfilled")

    def test_row_says_that_it_has_spent_every_attempt(self, consignments: Scenario) -> None:
        """
        It has spent every attempt: --send is refused for it.
        """
        order = consignments.instance_in("fulfilling")
        spent = open_transition_message(order, "process", "fulfil", errors_count=5)

        line = told()
        with pytest.raises(CommandError):
            told("--send", str(spent.pk))

        assert "spent_all_attempts" in line

    def test_queues_narrow_the_list(self, order: Consignment) -> None:
        """
        --queues narrows the list.
        """
        order.process.fulfil()

        assert "fulfil" in told("--queues", "django_logic.critical")
        assert "fulfil" not in told("--queues", "django_logic.slow")


class TestTwoSafetyNets:
    """
    "The worker loop runs two safety nets once a minute."
    """

    def test_row_that_no_worker_serves_is_reported(
        self, order: Consignment, clock: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        It also reports a row that waited past the retry window with no attempt.
        """
        order.process.fulfil()
        clock.advance(hours=1)

        finalized = detect_stuck_transitions()

        assert finalized == 0
        (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert "django_logic.critical" in line.getMessage()

    def test_old_rows_are_deleted_but_the_newest_failed_one(
        self, consignments: Scenario, order: Consignment, clock: Any
    ) -> None:
        """
        cleanup deletes rows older than CLEANUP_DAYS, and keeps the newest failed row per instance and process.
        """
        for _ in range(2):
            Consignment.objects.filter(pk=order.pk).update(status="approved")
            fail_once(consignments, order, PermanentFailure("no such country"))
        consignments.background_transition(consignments.instance_in("approved"), "fulfil")
        kept = row(order).pk
        clock.advance(days=8)

        deleted = cleanup_completed_transitions()

        assert [message.pk for message in TransitionMessage.objects.all()] == [kept]
        assert deleted > 0


class TestSyncExecution:
    """
    "Sync execution runs the worker path inline, for tests only."
    """

    def test_boot_refuses_sync_without_enable_sync(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        A test settings module calls enable_sync(); boot refuses the value anywhere else.
        """
        monkeypatch.setattr(conf, "_sync_allowed", False)

        with override_settings(DJANGO_LOGIC={"BACKGROUND_EXECUTION": "sync"}), pytest.raises(ImproperlyConfigured):
            conf.validate()

    def test_sync_execution_runs_the_whole_work_in_the_call(
        self, consignments: Scenario, order: Consignment, ledger: Ledger
    ) -> None:
        """
        The call returns with the work and its callback done.
        """
        with override_settings(DJANGO_LOGIC={"BACKGROUND_EXECUTION": "sync"}):
            order.process.fulfil()

        assert order.status == "fulfilled"
        consignments.assert_state(order, "fulfilled")
        assert ledger.count("send_tracking_email", "stop") == 1


def test_declaration_takes_the_keywords_of_the_manual() -> None:
    """
    The slots of the printed example are those of the class.
    """
    slots: dict[str, Any] = {"in_progress_state": "b", "failed_state": "c", "queue": "q", "timeout": 600}

    declared = BackgroundTransition(action_name="fulfil", sources=["a"], target="d", **slots)

    assert {name: getattr(declared, name) for name in slots} == slots
