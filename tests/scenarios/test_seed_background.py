"""
Prove what the manual's chapter on background transitions says of workers, line by line, with processes of their own.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command, load_command_class

from django_logic.background.models import TransitionMessage
from django_logic.testing import Scenario, open_transition_message
from tests.scenarios.seed_app.models import Booking, Consignment
from tests.scenarios.told import told
from tests.worker import harness
from tests.worker.gates import Gate
from tests.worker.harness import is_held, row, until, worker
from tests.worker_app.ledger import Ledger

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres", "ledger")]

QUEUES = "django_logic.critical,django_logic.fast"
#: Few attempts, and a pause that is over at once.
TWO_ATTEMPTS = {"DJANGO_LOGIC": {"TRANSITION_MESSAGE_RETRY_MINUTES": 0.001, "TRANSITION_MESSAGE_MAX_ERRORS": 2}}


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


class TestBackgroundTransitions:
    """
    "BackgroundTransition runs its side-effects on a worker process, and retries them."
    """

    def test_worker_claims_the_row_and_does_the_work(
        self, consignments: Scenario, order: Consignment, ledger: Ledger
    ) -> None:
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
        moves = [("draft", "approved", None), ("approved", "fulfilling", None), ("fulfilling", "fulfilled", None)]
        consignments.assert_history(order, moves)

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

    def test_queue_is_optional(self, consignments: Scenario, order: Consignment) -> None:
        """
        A transition without it runs on DEFAULT_QUEUE, which is django_logic; BackgroundAction changes no state.
        """
        order.process.remind()
        message = TransitionMessage.objects.get()

        with worker("django_logic"):
            until(lambda: has_ended(order))

        assert (message.queue_name, status(order), Booking.objects.count()) == ("django_logic", "approved", 1)
        consignments.assert_history(order, [("draft", "approved", None)])

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

    def test_concurrency_says_how_many_attempts_run_at_a_time(self, consignments: Scenario, gate: Gate) -> None:
        """
        Each attempt runs in its own forked process and holds its own database connection.
        """
        orders = [consignments.instance_in("approved") for _ in range(3)]
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

    def test_row_says_that_a_worker_runs_it(self, order: Consignment, gate: Gate) -> None:
        """
        A worker runs it now.
        """
        order.process.fulfil(gate=str(gate.path))

        with worker(QUEUES, args=["--name", "pod-7"]):
            gate.arrival()
            line = told()
            gate.let_go()
            until(lambda: has_ended(order))

        assert "running" in line
        assert "pod-7" in line

    def test_row_says_that_it_waits_out_the_pause_and_send_clears_it(
        self, consignments: Scenario, order: Consignment
    ) -> None:
        """
        It waits out the retry pause; --send clears that wait on one row, and the next claim takes it.
        """
        outage = ConnectionError("outage")
        consignments.background_transition(order, "fulfil", fail_side_effect="print_labels", fail_with=outage)
        line = told()

        with worker(QUEUES) as running:
            running.wait_ready()
            told("--send", str(row(order).pk))
            until(lambda: has_ended(order))

        assert "retry_pause_until" in line
        assert "outage" in line
        assert status(order) == "fulfilled"


class TestTwoSafetyNets:
    """
    "The worker loop runs two safety nets once a minute."
    """

    def test_worker_finalizes_a_row_that_has_spent_every_attempt(self, consignments: Scenario, ledger: Ledger) -> None:
        """
        detect_stuck_transitions writes failed_state, runs failure_callbacks and completes the row.
        """
        order = consignments.instance_in("fulfilling")
        open_transition_message(order, "process", "fulfil_or_call", queue_name="nobody", errors_count=5)

        with worker(QUEUES):  # which does not serve that queue; upkeep comes first of all
            until(lambda: row(order).is_completed)
            TransitionMessage.objects.open().update(queue_name="django_logic.critical")
            until(lambda: has_ended(order))

        assert (status(order), row(order).ended_in_failure, row(order).duration_ms) == ("fulfilment_failed", True, None)
        assert ledger.count("call_customer", "stop") == 1
        assert ledger.count("book_courier") == 0
