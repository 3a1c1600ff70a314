"""
Prove the manual's chapter on background transitions, line by line, with a worker process wherever it speaks of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command, load_command_class
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from django_logic import conf
from django_logic.background import BackgroundTransition, run_available
from django_logic.background.models import TransitionMessage
from django_logic.background.safety_nets import cleanup_completed_transitions, detect_stuck_transitions
from django_logic.exceptions import (
    AlreadyInProgress,
    TransitionNotAllowed,
    TransitionTemporarilyUnavailable,
)
from tests.scenarios.seed_app.models import Booking, Consignment
from tests.worker import harness
from tests.worker.gates import Gate, gate
from tests.worker.harness import is_held, row, until, worker
from tests.worker_app import ledger as ledgers
from tests.worker_app.ledger import Ledger

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres", "ledger")]

QUEUES = "django_logic.critical,django_logic.fast"
#: Few attempts, and a pause that is over at once.
TWO_ATTEMPTS = {"DJANGO_LOGIC": {"TRANSITION_MESSAGE_RETRY_MINUTES": 0.001, "TRANSITION_MESSAGE_MAX_ERRORS": 2}}


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """
    Give an empty ledger, which this process and every worker it starts write in.
    """
    monkeypatch.setenv(ledgers.VARIABLE, str(tmp_path / "ledger"))
    return Ledger(tmp_path / "ledger")


@pytest.fixture(name="gate")
def closed_gate(tmp_path: Path) -> Iterator[Gate]:
    """
    Give a gate that stops who comes by.
    """
    with gate(tmp_path) as made:
        yield made


@pytest.fixture
def order() -> Consignment:
    """
    Give an order that was approved.
    """
    order = Consignment.objects.create()
    order.process.approve()
    return order


def status(order: Consignment) -> str:
    """
    Read the status that is stored.
    """
    return Consignment.objects.values_list("status", flat=True).get(pk=order.pk)


def has_ended(order: Consignment) -> bool:
    """
    Tell whether no row of an order is open, rows that follow included.
    """
    return not TransitionMessage.objects.for_instance(order).open().exists()


def listed(*words: str) -> str:
    """
    Return what dl_transitions prints.
    """
    out = StringIO()
    call_command("dl_transitions", *words, stdout=out)
    return out.getvalue()


class TestBackgroundTransitions:
    """
    "BackgroundTransition runs its side-effects on a worker process, and retries them."
    """

    def test_call_writes_busy_state_and_one_row_and_returns(self, order: Consignment, ledger: Ledger) -> None:
        """
        The call writes in_progress_state and one TransitionMessage row in a single transaction, then returns.
        """
        returned = order.process.fulfil()

        message = TransitionMessage.objects.get()
        assert (returned, status(order)) == (True, "fulfilling")
        assert (message.is_completed, message.queue_name, message.timeout_seconds) == (
            False,
            "django_logic.critical",
            600,
        )
        assert ledger.entries() == []

    def test_row_and_busy_state_roll_back_together(self, order: Consignment) -> None:
        """
        A single transaction: what undoes one undoes the other.
        """
        with transaction.atomic():
            order.process.fulfil()
            transaction.set_rollback(True)

        assert (status(order), TransitionMessage.objects.count()) == ("approved", 0)

    def test_worker_claims_the_row_and_does_the_work(self, order: Consignment, ledger: Ledger) -> None:
        """
        A worker claims that row, runs the side-effects and writes the target state; the callback runs there as well.
        """
        order.process.fulfil()

        with worker(QUEUES) as running:
            until(lambda: has_ended(order))
            booking, pids = Booking.objects.get(consignment_id=order.pk), running.children()

        assert (status(order), row(order).outcome) == ("fulfilled", "succeeded")
        assert booking.pid in pids
        assert ledger.count("send_tracking_email", "stop") == 1
        moves = list(order.process.history.values_list("from_state", "to_state"))
        assert moves == [("draft", "approved"), ("approved", "fulfilling"), ("fulfilling", "fulfilled")]

    def test_side_effects_and_target_are_one_atomic_block(self, order: Consignment, gate: Gate) -> None:
        """
        All in one atomic block: nobody sees a write of a side effect before the target state.
        """
        order.process.fulfil(gate=str(gate.path))

        with worker(QUEUES):
            gate.arrival()
            seen = Booking.objects.count(), status(order)
            gate.let_go()
            until(lambda: has_ended(order))

        assert seen == (0, "fulfilling")
        assert (Booking.objects.count(), status(order)) == (1, "fulfilled")

    def test_failed_attempt_is_undone_and_waits_out_the_pause(self, order: Consignment, ledger: Ledger) -> None:
        """
        A failed attempt rolls back its own database writes and becomes claimable again after RETRY_MINUTES.
        """
        order.process.fulfil(trouble="outage", times=1)

        with worker(QUEUES):
            until(lambda: row(order).errors_count == 1)
        failed = row(order)
        in_between = Booking.objects.count(), status(order)
        with worker(QUEUES) as second:
            second.wait_ready()
            harness.skip_pause(order)
            until(lambda: has_ended(order))

        assert in_between == (0, "fulfilling")
        assert failed.last_error_message == "ConnectionError: outage"
        assert failed.last_error_dt is not None
        assert failed.run_at - failed.last_error_dt == pytest.approx(timedelta(minutes=2), abs=timedelta(seconds=1))
        assert (status(order), Booking.objects.count(), row(order).attempts_started) == ("fulfilled", 1, 2)
        # "A retry runs them again from the start."
        assert (ledger.count("book_courier"), ledger.count("print_labels")) == (2, 2)

    def test_spent_attempts_end_in_failed_state(self, order: Consignment, ledger: Ledger) -> None:
        """
        After MAX_ERRORS attempts django-logic writes failed_state, runs failure_callbacks and completes the row.
        """
        order.process.fulfil_or_call(trouble="outage")

        with worker(QUEUES, settings=TWO_ATTEMPTS):
            until(lambda: has_ended(order))

        ended = row(order)
        assert (status(order), Booking.objects.count()) == ("fulfilment_failed", 0)
        assert (ended.is_completed, ended.ended_in_failure, ended.errors_count) == (True, True, 2)
        assert ledger.count("call_customer", "stop") == 1

    def test_queue_is_optional(self, order: Consignment) -> None:
        """
        A transition without it runs on DEFAULT_QUEUE, which is django_logic; BackgroundAction changes no state.
        """
        order.process.remind()
        message = TransitionMessage.objects.get()

        with worker("django_logic"):
            until(lambda: has_ended(order))

        assert (message.queue_name, status(order), Booking.objects.count()) == ("django_logic", "approved", 1)
        assert order.process.history.count() == 1

    def test_attempt_past_its_timeout_is_killed_and_costs_one_error(self, order: Consignment, gate: Gate) -> None:
        """
        The worker kills an attempt that runs past it and records one error on the row.
        """
        order.process.fulfil_or_call(gate=str(gate.path))

        with worker(QUEUES) as running:
            gate.arrival()
            until(lambda: row(order).errors_count)
            is_running = running.is_running()

        failed = row(order)
        assert is_running
        assert (failed.errors_count, failed.last_error_message.split()[0]) == (1, "[timeout]")
        assert (status(order), Booking.objects.count()) == ("fulfilling", 0)

    @pytest.mark.parametrize("trouble", ["no such country", "customs"])
    def test_failure_that_a_retry_can_not_help_takes_the_failure_path_at_once(
        self, order: Consignment, ledger: Ledger, trouble: str
    ) -> None:
        """
        PermanentFailure, and what no_retry_on lists, take the failure path on the first attempt.
        """
        order.process.fulfil_or_call(trouble=trouble)

        with worker(QUEUES):
            until(lambda: has_ended(order))

        assert (status(order), row(order).attempts_started) == ("fulfilment_failed", 1)
        assert ledger.count("print_labels") == 1

    def test_open_row_keeps_other_transitions_out(self, order: Consignment) -> None:
        """
        A second background transition raises AlreadyInProgress, a synchronous one TransitionTemporarilyUnavailable.
        """
        order.process.fulfil()

        with pytest.raises(AlreadyInProgress):
            order.process.fulfil()
        with pytest.raises(TransitionTemporarilyUnavailable) as busy:
            order.process.cancel()

        assert not isinstance(busy.value, AlreadyInProgress)
        assert isinstance(busy.value, TransitionNotAllowed)
        assert (status(order), TransitionMessage.objects.count()) == ("fulfilling", 1)

    def test_follow_up_work_starts_from_a_callback(self, order: Consignment, ledger: Ledger) -> None:
        """
        A callback runs after django-logic completes the row, so it may start the next background transition.
        """
        order.process.fulfil_or_call()

        with worker(f"{QUEUES},django_logic"):
            until(lambda: has_ended(order) and TransitionMessage.objects.filter(transition_name="remind").exists())

        assert (status(order), Booking.objects.count()) == ("fulfilled", 2)
        assert ledger.count("start_follow_up", "stop") == 1


class TestRunTheWorkers:
    """
    "One dl_worker process serves one group of queues."
    """

    def test_worker_serves_its_queues_only(self, order: Consignment) -> None:
        """
        A row waits for a worker that serves its queue.
        """
        order.process.fulfil()

        with worker("django_logic.slow", args=["--drain"]) as other:
            assert other.wait() == 0

        assert (status(order), row(order).attempts_started) == ("fulfilling", 0)

    def test_concurrency_says_how_many_attempts_run_at_a_time(self, gate: Gate) -> None:
        """
        Each attempt runs in its own forked process and holds its own database connection.
        """
        orders = [Consignment.objects.create(status="approved") for _ in range(3)]
        for each in orders:
            each.process.fulfil(gate=str(gate.path))

        with worker(QUEUES, concurrency=2) as running:
            pids = {gate.arrival().pid, gate.arrival().pid}
            sessions = {row(each).backend_pid for each in orders if is_held(row(each))}
            has_third = gate.has_arrival()
            children = set(running.children())
            gate.let_go(3)
            until(lambda: all(map(has_ended, orders)))

        assert pids <= children
        assert (len(pids), len(sessions), has_third) == (2, 2, False)

    def test_default_is_one_attempt_at_a_time(self) -> None:
        """
        The default is 1, and --queues is required.
        """
        parser = load_command_class("django_logic.background", "dl_worker").create_parser("manage.py", "dl_worker")

        defaults = parser.parse_args(["--queues", "a"])

        assert int(defaults.concurrency) == 1
        with pytest.raises(CommandError, match="--queues"):
            call_command("dl_worker")

    def test_dead_worker_leaves_its_row_to_the_next_claim(self, order: Consignment, ledger: Ledger) -> None:
        """
        A worker that dies releases its row lock with its database connection, and the next claim takes the row.
        """
        order.process.fulfil(trouble="power cut", times=1)
        with worker(QUEUES) as doomed:
            doomed.wait()
        until(lambda: not is_held(row(order)))
        left = Booking.objects.count(), status(order)
        harness.skip_pause(order)  # the claim's lease, which ends by itself within ten seconds

        with worker(QUEUES):
            until(lambda: has_ended(order))

        assert left == (0, "fulfilling")
        assert (status(order), Booking.objects.count()) == ("fulfilled", 1)
        assert (row(order).attempts_started, row(order).last_error_message.split()[0]) == (2, "[lost]")
        assert ledger.count("send_tracking_email", "stop") == 1


class TestSeeWhatIsNotMoving:
    """
    "dl_transitions lists every uncompleted background transition and says why each one is not moving."
    """

    def test_row_says_that_no_worker_serves_its_queue(self, order: Consignment) -> None:
        """
        No worker serves its queue.
        """
        order.process.fulfil()

        assert "no_worker_for_queue" in listed()

    def test_row_says_that_a_worker_runs_it(self, order: Consignment, gate: Gate) -> None:
        """
        A worker runs it now.
        """
        order.process.fulfil(gate=str(gate.path))

        with worker(QUEUES, args=["--name", "pod-7"]):
            gate.arrival()
            told = listed()
            gate.let_go()
            until(lambda: has_ended(order))

        assert "running" in told
        assert "pod-7" in told

    def test_row_says_that_it_waits_out_the_pause_and_send_clears_it(self, order: Consignment) -> None:
        """
        It waits out the retry pause; --send clears that wait on one row, and the next claim takes it.
        """
        order.process.fulfil(trouble="outage", times=1)
        run_available()
        told = listed()

        with worker(QUEUES) as running:
            running.wait_ready()
            listed("--send", str(row(order).pk))
            until(lambda: has_ended(order))

        assert "retry_pause_until" in told
        assert "outage" in told
        assert status(order) == "fulfilled"

    def test_send_runs_no_side_effects_itself(self, order: Consignment, ledger: Ledger) -> None:
        """
        The command runs no side-effects itself.
        """
        order.process.fulfil(trouble="outage", times=1)
        run_available()

        listed("--send", str(row(order).pk))

        assert ledger.count("book_courier") == 1
        assert row(order).run_at <= timezone.now() + timedelta(seconds=1)

    def test_row_says_that_it_has_spent_every_attempt(self, order: Consignment) -> None:
        """
        It has spent every attempt: --send is refused for it.
        """
        order.process.fulfil()
        TransitionMessage.objects.update(attempts_started=5, errors_count=5)

        told = listed()
        with pytest.raises(CommandError):
            listed("--send", str(row(order).pk))

        assert "spent_all_attempts" in told

    def test_queues_narrow_the_list(self, order: Consignment) -> None:
        """
        --queues narrows the list.
        """
        order.process.fulfil()

        assert "fulfil" in listed("--queues", "django_logic.critical")
        assert "fulfil" not in listed("--queues", "django_logic.slow")


class TestTwoSafetyNets:
    """
    "The worker loop runs two safety nets once a minute."
    """

    def test_worker_finalizes_a_row_that_has_spent_every_attempt(self, order: Consignment, ledger: Ledger) -> None:
        """
        detect_stuck_transitions writes failed_state, runs failure_callbacks and completes the row.
        """
        order.process.fulfil_or_call()
        TransitionMessage.objects.update(attempts_started=5, errors_count=5, queue_name="nobody")

        with worker(QUEUES):  # which does not serve that queue; upkeep comes first of all
            until(lambda: row(order).is_completed)
            TransitionMessage.objects.open().update(queue_name="django_logic.critical")
            until(lambda: has_ended(order))

        assert (status(order), row(order).ended_in_failure, row(order).duration_ms) == ("fulfilment_failed", True, None)
        assert ledger.count("call_customer", "stop") == 1
        assert ledger.count("book_courier") == 0

    def test_row_that_no_worker_serves_is_reported(self, order: Consignment, caplog: pytest.LogCaptureFixture) -> None:
        """
        It also reports a row that waited past the retry window with no attempt.
        """
        order.process.fulfil()
        TransitionMessage.objects.update(run_at=timezone.now() - timedelta(hours=1))

        finalized = detect_stuck_transitions()

        assert finalized == 0
        (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert "django_logic.critical" in line.getMessage()

    def test_old_rows_are_deleted_but_the_newest_failed_one(self, order: Consignment) -> None:
        """
        cleanup deletes rows older than CLEANUP_DAYS, and keeps the newest failed row per instance and process.
        """
        for _ in range(2):
            Consignment.objects.filter(pk=order.pk).update(status="approved")
            Consignment.objects.get(pk=order.pk).process.fulfil(trouble="no such country")
            run_available()
        other = Consignment.objects.create(status="approved")
        other.process.fulfil()
        run_available()
        long_ago = timezone.now() - timedelta(days=8)
        TransitionMessage.objects.update(created=long_ago, completed_at=long_ago)
        kept = row(order).pk

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

    def test_sync_execution_runs_the_whole_work_in_the_call(self, order: Consignment, ledger: Ledger) -> None:
        """
        The call returns with the work and its callback done.
        """
        with override_settings(DJANGO_LOGIC={"BACKGROUND_EXECUTION": "sync"}):
            order.process.fulfil()

        assert (order.status, status(order)) == ("fulfilled", "fulfilled")
        assert ledger.count("send_tracking_email", "stop") == 1


def test_declaration_takes_the_keywords_of_the_manual() -> None:
    """
    The slots of the printed example are those of the class.
    """
    slots: dict[str, Any] = {"in_progress_state": "b", "failed_state": "c", "queue": "q", "timeout": 600}

    declared = BackgroundTransition(action_name="fulfil", sources=["a"], target="d", **slots)

    assert {name: getattr(declared, name) for name in slots} == slots
