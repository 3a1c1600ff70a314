"""
Prove that the kit's single helpers do what they say, and fail when they should.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from django_logic import Transition
from django_logic.background import run_available
from django_logic.background.models import TransitionMessage
from django_logic.background.safety_nets import detect_stuck_transitions
from django_logic.exceptions import TransitionNotAllowed
from django_logic.testing import (
    Scenario,
    advance,
    assert_idempotent,
    from_snapshot,
    open_transition_message,
    race,
    record_driven_transitions,
    snapshot,
)
from tests.app.models import Child, Ticket, UuidDocument
from tests.constraints_app.models import Order
from tests.flows import Bind, declare
from tests.testkit.shop import ParcelProcess

pytestmark = pytest.mark.django_db


class TestClock:
    """
    Time that passes without anybody waiting.
    """

    def test_pause_runs_out(self, parcels: Scenario, clock: Any, run_background: Callable[..., int]) -> None:
        """
        A failed attempt is tried again once its pause is over, and not before.
        """
        parcel = parcels.create_instance(state="packed")
        parcels.background_transition(parcel, "send", fail_side_effect="book_courier")

        clock.advance(minutes=9)
        early = run_background()
        clock.advance(minutes=2)

        assert (early, run_background()) == (0, 2)
        parcels.assert_state(parcel, "sent")

    def test_delayed_work_comes_due(self, parcels: Scenario, run_background: Callable[..., int]) -> None:
        """
        A call with delay= waits for its time.
        """
        parcel = parcels.create_instance(state="packed")
        parcels.background_transition(parcel, "send", delay=3600)
        parcels.assert_state(parcel, "sending")

        advance(minutes=59)
        assert run_background() == 0
        advance(hours=1)

        assert run_background() == 2
        parcels.assert_state(parcel, "sent")

    def test_rows_that_wait_for_an_operator_go_on_waiting(self, parcels: Scenario) -> None:
        """
        "Never" does not come nearer, and other objects' times move alike.
        """
        parcel = parcels.create_instance(state="packed")
        row = open_transition_message(parcel, "way", "send")
        TransitionMessage.objects.filter(pk=row.pk).update(run_at=row.run_at.replace(year=9999, month=1, day=1))

        advance(days=400)

        row.refresh_from_db()
        assert row.run_at.year >= 9998
        assert timezone.now() - row.created > timedelta(days=399)

    def test_time_does_not_run_backwards(self) -> None:
        """
        A negative span is refused.
        """
        with pytest.raises(ValueError, match="does not run backwards"):
            advance(minutes=-1)


class TestOpenRow:
    """
    A row as a test of safety nets needs it.
    """

    def test_row_is_run_like_any_other(self, parcels: Scenario) -> None:
        """
        It names the declaration and its queue, so that a worker can run it.
        """
        parcel = parcels.create_instance(state="sending")

        row = open_transition_message(parcel, "way", "send", errors_count=1, started_minutes_ago=20)

        assert (row.errors_count, row.attempts_started, row.is_completed) == (1, 1, False)
        assert row.owning_process_class == "tests.testkit.shop.ParcelProcess"
        assert timedelta(minutes=19) < timezone.now() - row.started_at < timedelta(minutes=21)
        if connection.features.supports_partial_indexes:
            with pytest.raises(IntegrityError), transaction.atomic():
                open_transition_message(parcel, "way", "send")

    def test_spent_row_is_found_by_the_safety_net(self, committed_parcels: Scenario) -> None:
        """
        Upkeep ends what has no attempt left.
        """
        parcel = committed_parcels.create_instance(state="sending")
        open_transition_message(parcel, "way", "send", errors_count=2, started_minutes_ago=20)

        detect_stuck_transitions()

        committed_parcels.assert_state(parcel, "lost")

    def test_queue_and_unknown_names_are_taken(self, parcels: Scenario) -> None:
        """
        A row of a transition that no longer exists is a case to test.
        """
        row = open_transition_message(parcels.create_instance(), "way", "gone", queue_name="old")

        assert (row.transition_name, row.queue_name, row.owning_process_class) == ("gone", "old", "")


class TestSnapshots:
    """
    An object and its row, carried from one database to another.
    """

    def test_stuck_object_is_replayed(self, parcels: Scenario, tmp_path: Path) -> None:
        """
        H91: everything comes back as it was, the clock of the retry included, and goes on from there.
        """
        parcel = parcels.create_instance(state="packed", note="fragile")
        parcels.background_transition(parcel, "send", fail_side_effect="book_courier")
        described = parcels.snapshot(parcel)
        file = tmp_path / "stuck.json"
        file.write_text(json.dumps(described))
        before = TransitionMessage.objects.values().get()
        TransitionMessage.objects.all().delete()
        Ticket.objects.all().delete()

        replayed = parcels.from_snapshot(file)

        assert described["state"] == "sending"
        assert parcels.snapshot(replayed)["fields"] == described["fields"]
        after = TransitionMessage.objects.values().get()
        assert {**after, "id": 0} == {**before, "id": 0}
        parcels.retry_transition(replayed)
        parcels.assert_state(replayed, "sent")

    def test_rows_an_object_has_are_replaced(self, parcels: Scenario) -> None:
        """
        Only its own: those of others, and of its other processes, stay.
        """
        other = parcels.create_instance(state="packed")
        parcels.background_transition(other, "send")
        parcel = parcels.create_instance(state="packed")
        described = snapshot(parcel, state_field="state", process_name="way")
        open_transition_message(parcel, "way", "send")
        parcel_pk = parcel.pk
        Ticket.objects.filter(pk=parcel_pk).delete()

        from_snapshot(described, model=Ticket)

        assert list(TransitionMessage.objects.transitions().values_list("instance_id", flat=True)) == [str(other.pk)]

    def test_faithful_or_refused(self, bind: Bind) -> None:
        """
        H91: keys, times and decimals come back equal; a snapshot of another model is refused.
        """
        bind(declare(Transition("go", ["new"], "done")), UuidDocument)
        document = UuidDocument.objects.create()
        described = json.loads(json.dumps(snapshot(document, state_field="state", process_name="flow")))
        UuidDocument.objects.all().delete()

        assert from_snapshot(described).pk == document.pk
        with pytest.raises(ValueError, match=r"is of app\.UuidDocument; expected app\.Ticket"):
            from_snapshot(described, model=Ticket)
        with pytest.raises(ValueError, match="no column \\['colour'\\]"):
            from_snapshot({**described, "pk": "", "fields": {**described["fields"], "colour": "red"}})
        with pytest.raises(IntegrityError), transaction.atomic():
            from_snapshot(described)

    def test_value_that_would_come_back_as_another_one_is_refused(
        self, bind: Bind, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        H91: a snapshot does not turn what it can't keep into text.
        """
        bind(declare(Transition("go", ["new"], "done")), UuidDocument)
        document = UuidDocument.objects.create()
        monkeypatch.setattr(UuidDocument._meta.pk, "value_to_string", lambda _holder: str(uuid4()))

        with pytest.raises(TypeError, match=r"app\.UuidDocument\.\w+ holds a UUID, which a snapshot can't keep"):
            snapshot(document, state_field="state", process_name="flow")

    @pytest.mark.django_db(transaction=True)  # MySQL ends a transaction when a trigger is suspended
    def test_parents_and_guarded_states_come_back(self, bind: Bind) -> None:
        """
        A child of another table, and an object that no insert could have put where it is.
        """
        bind(declare(Transition("go", ["new"], "done")), Child)
        child = Child.objects.create()
        bind(declare(Transition("pay", ["placed"], "paid")), Order, "status")
        order = Order.objects.create(status="placed", note="mine")
        order.flow.pay()
        described = snapshot(child, state_field="state", process_name="flow"), snapshot(order, process_name="flow")
        Child.objects.all().delete()
        Order.objects.all().delete()

        assert from_snapshot(described[0]).pk == child.pk
        assert snapshot(from_snapshot(described[1]), process_name="flow") == described[1]
        assert Child.objects.get().state == "new"

    def test_row_of_another_process_is_not_taken(self, parcels: Scenario, bind: Bind) -> None:
        """
        H92: helpers look at the row of the process that is named.
        """
        bind(declare(Transition("go", ["new"], "done")))
        parcel = parcels.create_instance(state="packed")
        open_transition_message(parcel, "flow", "other", errors_count=3)

        assert parcels.snapshot(parcel)["row"] is None
        with pytest.raises(AssertionError, match="has no row of background work in 'way'"):
            parcels.assert_error_count(parcel, 3)


class TestIdempotence:
    """
    Doing it twice.
    """

    def test_difference_is_told(self, parcels: Scenario) -> None:
        """
        Fields and captures are compared after the first and after the second run.
        """
        parcel = parcels.create_instance()
        shelf: list[int] = []

        def pack(ticket: Any, **_keywords: Any) -> None:
            ticket.way.pack()

        def pile(ticket: Any) -> None:
            shelf.append(1)

        assert_idempotent(pack, parcel, fields=["state", "note"], capture=Ticket.objects.count)
        with pytest.raises(AssertionError, match=r"capture\(\).*\[1\], \[1, 1\]"):
            assert_idempotent(pile, parcel, capture=lambda: shelf)
        with pytest.raises(TypeError, match="observes nothing"):
            assert_idempotent(pack, parcel)
        with pytest.raises(TypeError, match="takes a list"):
            assert_idempotent(pack, parcel, fields="state")


class TestDriven:
    """
    Which actions were driven.
    """

    def test_refusals_and_duplicates_do_not_count(self, parcels: Scenario) -> None:
        """
        A failing side effect does, and background work too.
        """
        parcel = parcels.create_instance()
        with record_driven_transitions() as driven:
            parcels.transition(parcel, "look", expect_raises=TransitionNotAllowed)
            parcels.transition(parcel, "pack", fail_side_effect="reserve")
            parcels.transition(parcel, "restart")
            parcels.transition(parcel, "pack")
            parcels.background_transition(parcel, "send")
        parcels.transition(parcel, "take_back")
        with record_driven_transitions() as duplicate:
            parcels.transition(parcels.create_instance(state="packed"), "pack")

        assert duplicate.action_names == set()
        assert driven.action_names == {"pack", "restart", "send"}
        assert driven.undriven(ParcelProcess) == ["look", "take_back"]


class TestRace:
    """
    Calls at the same moment.
    """

    def test_one_moves_and_the_others_are_duplicates(
        self, committed_parcels: Scenario, race: Callable[..., Any]
    ) -> None:
        """
        Results come in the order of the racers; errors are results.
        """
        if not connection.features.has_select_for_update:
            pytest.skip("SQLite's writers wait for each other anyhow, in memory for a table lock")
        pk = committed_parcels.create_instance().pk

        def fail() -> None:
            raise KeyError("own")

        first, second, third = race(
            lambda: Ticket.objects.get(pk=pk).way.pack(), lambda: Ticket.objects.get(pk=pk).way.pack(), fail
        )

        assert sorted([first.value, second.value]) == [False, True]
        assert (first.error, second.error, repr(third.error)) == (None, None, "KeyError('own')")
        committed_parcels.assert_history(Ticket.objects.get(pk=pk), [("new", "packed", None)])

    def test_transaction_is_refused(self, parcels: Scenario) -> None:
        """
        Other connections would not see the test's rows.
        """
        with pytest.raises(RuntimeError, match="Run it in a test that commits"):
            race(lambda: None)


def test_run_background_fixture_runs_what_is_due(parcels: Scenario, run_background: Callable[..., int]) -> None:
    """
    Without any worker: the queue that is named, or all.
    """
    parcel = parcels.create_instance(state="packed")
    parcel.way.send()

    assert run_background(["elsewhere"]) == 0
    assert run_background() == 2
    parcels.assert_state(parcel, "sent")
    assert run_available() == 0
