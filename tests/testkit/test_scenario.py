"""
Prove that a scenario drives the real code, and that each of its assertions fails when it should, with the journey.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.test.utils import isolate_apps

from django_logic import Transition
from django_logic.background.claim import take_next
from django_logic.background.lanes import lanes_of
from django_logic.background.models import TransitionMessage
from django_logic.exceptions import TransitionForbidden, TransitionNotAllowed
from django_logic.testing import JourneyStep, Scenario
from tests.app.models import Sale, Ticket
from tests.flows import Bind, declare, names, noting
from tests.testkit import shop
from tests.testkit.shop import ParcelProcess

pytestmark = pytest.mark.django_db

Fails = Callable[..., str]
EVERYWHERE = pytest.mark.parametrize(
    "commits", [False, pytest.param(True, marks=pytest.mark.django_db(transaction=True))]
)


@pytest.fixture
def fails() -> Fails:
    """
    Give a function that calls an assertion, expects it to fail, and returns what it said.
    """

    def expect(assertion: Callable[..., Any], *arguments: Any, **keywords: Any) -> str:
        with pytest.raises(AssertionError) as caught:
            assertion(*arguments, **keywords)
        return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])

    return expect


@EVERYWHERE
def test_whole_way_is_driven_inline(parcels: Scenario, commits: bool) -> None:
    """
    Background work, its callbacks and what follows run in the drive; on a TestCase as after a real commit.
    """
    assert connection.in_atomic_block is not commits
    parcel = parcels.create_instance()

    assert parcels.transition(parcel, "pack", actor="web") is True
    parcels.assert_side_effects_ran(["reserve"])
    parcels.assert_callbacks_ran(["tell"])
    parcels.background_transition(parcel, "send")

    parcels.assert_state(parcel, "sent")
    parcels.assert_side_effects_ran(["book_courier"])
    parcels.assert_side_effects_not_ran(["reserve"])
    parcels.assert_callbacks_ran(["tell"])
    parcels.assert_state_trace(["sending", "sent"])
    parcels.assert_history(parcel, [("new", "packed", "web"), ("packed", "sending", None), ("sending", "sent", None)])
    parcels.assert_not_raised()
    assert parcel.note == "reserved booked "
    assert not TransitionMessage.objects.open().exists()


@EVERYWHERE
def test_failed_attempt_is_tried_again_and_given_up(parcels: Scenario, commits: bool) -> None:
    """
    The injected failure goes the way of a real one: an error on the row, then failed_state and failure callbacks.
    """
    parcel = parcels.create_instance(state="packed")

    parcels.background_transition(parcel, "send", fail_side_effect="book_courier", fail_with=OSError("no van"))

    parcels.assert_state(parcel, "sending")
    parcels.assert_raised(OSError, match="no van")
    parcels.assert_error_count(parcel, 1)
    parcels.assert_error_recorded(parcel, "no van")

    parcels.retry_transition(parcel, fail_side_effect="book_courier", expect_raises=Exception)

    parcels.assert_state(parcel, "lost")
    parcels.assert_failure_callbacks_ran(["warn"])
    parcels.assert_error_count(parcel, 2)
    parcels.assert_transition_owner(parcel, "tests.testkit.shop.ParcelProcess", transition_name="send")
    parcels.assert_journey(
        [
            {"action": "send", "before": "packed", "after": "sending", "failed": True},
            JourneyStep(action="send", after="lost", side_effects=[], callbacks=[], failed=True),
        ]
    )
    assert Ticket.objects.get().note == ""


def test_retry_that_succeeds_finishes_the_work(parcels: Scenario) -> None:
    """
    The open row is run again at once, whatever its pause.
    """
    parcel = parcels.create_instance(state="packed")
    parcels.background_transition(parcel, "send", fail_side_effect="book_courier")

    parcels.retry_transition(parcel)

    parcels.assert_state(parcel, "sent")
    parcels.assert_callbacks_ran(["tell"])


def test_next_transition_is_part_of_the_drive(parcels: Scenario) -> None:
    """
    H93: hooks and states of what follows count.
    """
    parcel = parcels.create_instance(state="broken")

    parcels.transition(parcel, "restart")

    parcels.assert_state_trace(["new", "packed"])
    parcels.assert_side_effects_ran(["reserve"])


def test_hooks_of_nested_processes_are_seen(parcels: Scenario) -> None:
    """
    H93: the whole tree is watched.
    """
    parcel = parcels.create_instance(state="sent")

    parcels.transition(parcel, "take_back")

    parcels.assert_callbacks_ran(["tell"])
    parcels.assert_state(parcel, "returned")


def test_move_by_target_is_driven(parcels: Scenario) -> None:
    """
    The same drive, whichever way the application calls.
    """
    parcel = parcels.create_instance()

    assert parcels.transition_to(parcel, "packed", fail_side_effect="reserve") is None
    parcels.assert_state(parcel, "broken")
    parcels.transition(parcel, "restart")
    assert parcels.transition_to(parcel, "packed") is False
    with pytest.raises(TransitionNotAllowed):
        parcels.transition_to(parcel, "returned")

    parcels.assert_journey(
        [
            {"action": "to packed", "failed": True},
            {"action": "restart"},
            {"action": "to packed", "failed": False, "side_effects": []},
            {"action": "to returned", "failed": True, "after": "packed"},
        ]
    )


def test_model_with_a_table_is_moved_by_its_own_method(process_scenario: Callable[..., Scenario]) -> None:
    """
    What a model's ``transition_to`` does beside the move is a part of the drive.
    """
    with isolate_apps("tests.app"):

        class NotedSale(Sale):
            class Meta:
                app_label = "app"
                proxy = True

            def transition_to(self, target: Any, **keywords: Any) -> bool:
                return super().transition_to(target, reason="by its own method", **keywords)

    sales = process_scenario(type(Sale().process), NotedSale)
    sale = sales.create_instance()

    assert sales.transition_to(sale, "placed", actor="web") is True

    sales.assert_history(sale, [("draft", "placed", "web")])
    assert sale.history.get().reason == "by its own method"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("rolls_back", [False, True])
def test_callbacks_wait_for_the_commit_of_a_caller(
    bind: Bind, process_scenario: Callable[..., Scenario], rolls_back: bool
) -> None:
    """
    A transaction that a test opens on a database that commits is a caller's: callbacks run once after it, or never.
    """
    log: list[Any] = []
    process = bind(declare(Transition("pay", ["new"], "paid", callbacks=[noting(log, "tell")])))
    tickets = process_scenario(process, Ticket, state_field="state")
    ticket = tickets.create_instance()

    with transaction.atomic():
        tickets.transition(ticket, "pay")
        within = names(log)
        transaction.set_rollback(rolls_back)

    assert (within, names(log)) == ([], [] if rolls_back else ["tell"])
    tickets.assert_state(ticket, "new" if rolls_back else "paid")


class WritesElsewhere:
    """
    Send what is written to another database than what is read.
    """

    def db_for_write(self, model: Any, **_hints: Any) -> str:
        """
        Name the database of writes.
        """
        return "other"


@pytest.mark.django_db(databases=["default", "other"])
def test_object_is_read_where_it_is_written(parcels: Scenario, settings: Any) -> None:
    """
    A project's routers decide for the kit as they do for calls.
    """
    settings.DATABASE_ROUTERS = [WritesElsewhere()]
    pk = Ticket.objects.using("other").create(pk=1).pk
    parcel = Ticket(pk=pk)
    parcel._state.adding, parcel._state.db = False, "default"

    parcels.transition(parcel, "pack")

    parcels.assert_journey([{"action": "pack", "before": "new", "after": "packed"}])
    assert Ticket.objects.using("other").get().state == "packed"


class TestDrives:
    """
    What makes a drive itself fail.
    """

    def test_unknown_action(self, parcels: Scenario, fails: Fails) -> None:
        """
        The actions there are get listed.
        """
        told = fails(parcels.transition, parcels.create_instance(), "sned")
        assert "no action 'sned'" in told
        assert "'send'" in told

    def test_wrong_method(self, parcels: Scenario, fails: Fails) -> None:
        """
        A background action is not called as a plain one, nor the other way round.
        """
        parcel = parcels.create_instance(state="packed")
        assert "Call background_transition()" in fails(parcels.transition, parcel, "send")
        assert "Call transition()" in fails(parcels.background_transition, parcel, "pack")
        assert parcels.steps == []

    def test_unknown_side_effect(self, parcels: Scenario) -> None:
        """
        H89: a name that is no side effect, as a callback's, would make a happy path of a failure test.
        """
        parcel = parcels.create_instance()
        for name in ("tell", "reserv"):
            with pytest.raises(ValueError, match=f"'{name}' is no side effect of ParcelProcess.*reserve"):
                parcels.transition(parcel, "pack", fail_side_effect=name)
        with pytest.raises(TypeError, match="Name the side effect"):
            parcels.transition(parcel, "pack", fail_with=OSError)

    def test_injected_failure_that_never_fires(self, parcels: Scenario, fails: Fails) -> None:
        """
        H89: the side effect belongs to another action.
        """
        told = fails(parcels.transition, parcels.create_instance(), "pack", fail_side_effect="book_courier")
        assert "'book_courier' was to fail and never ran" in told
        assert "1. call pack: 'new' -> 'packed'" in told

    def test_what_makes_no_exception(self, parcels: Scenario) -> None:
        """
        fail_with takes an exception, a class or a function that makes one.
        """
        parcel = parcels.create_instance()
        parcels.transition(parcel, "pack", fail_side_effect="reserve", fail_with=lambda: OSError("made"))
        parcels.assert_raised(OSError, match="made")
        with pytest.raises(TypeError, match="fail_with takes an exception"):
            parcels.transition(
                parcels.create_instance(),
                "pack",
                fail_side_effect="reserve",
                fail_with=lambda: "text",  # type: ignore[arg-type,return-value]
            )

    def test_expected_error(self, parcels: Scenario, fails: Fails) -> None:
        """
        A class must come out, False lets nothing out, None lets only the injected one out.
        """
        parcel = parcels.create_instance(state="sent")
        parcels.transition(parcel, "pack", expect_raises=TransitionNotAllowed)
        told = fails(parcels.transition, parcel, "take_back", expect_raises=TransitionNotAllowed)
        assert "to come out; found None" in told
        told = fails(parcels.transition, parcel, "look", expect_raises=(OSError, KeyError))
        assert "found InvalidTransition(" in told
        with pytest.raises(TransitionNotAllowed) as caught:
            parcels.transition(parcel, "look")
        assert "4. call look: 'returned' -> 'returned'" in caught.value.__notes__[0]
        with pytest.raises(OSError, match="injected"):
            parcels.transition(
                parcels.create_instance(),
                "pack",
                fail_side_effect="reserve",
                fail_with=OSError("injected"),
                expect_raises=False,
            )

    def test_nothing_to_retry(self, parcels: Scenario, fails: Fails) -> None:
        """
        A row that has ended is not run again.
        """
        parcel = parcels.create_instance(state="packed")
        assert "no open row" in fails(parcels.retry_transition, parcel)
        parcels.background_transition(parcel, "send")
        told = fails(parcels.retry_transition, parcel)
        assert "no open row" in told
        assert "outcome='succeeded'" in told

    def test_row_that_is_claimed(self, parcels: Scenario, fails: Fails, clock: Any) -> None:
        """
        A retry that could not run must not pass; once the claim is over it runs.
        """
        parcel = parcels.create_instance(state="packed")
        parcel.way.send()
        assert take_next("default", lanes_of("default", None)) is not None

        assert "Somebody holds the open row" in fails(parcels.retry_transition, parcel)
        clock.advance(minutes=1)
        parcels.retry_transition(parcel)

        parcels.assert_state(parcel, "sent")

    def test_everything_is_put_back(self, parcels: Scenario) -> None:
        """
        The declarations are as they were, after an error too.
        """
        pack, send = ParcelProcess.transitions[:2]
        parcel = parcels.create_instance()
        parcels.transition(parcel, "pack", fail_side_effect="reserve")
        with pytest.raises(ValueError, match="no side effect"):
            parcels.transition(parcel, "pack", fail_side_effect="nobody")

        assert (pack.side_effects, pack.callbacks, pack.failure_callbacks) == (
            (shop.reserve,),
            (shop.tell,),
            (shop.warn,),
        )
        assert (send.side_effects, send.callbacks) == ((shop.book_courier,), (shop.tell,))


class TestAssertions:
    """
    Each assertion fails, and says what was found and how it came to be.
    """

    def test_before_any_drive(self, parcels: Scenario, fails: Fails) -> None:
        """
        What is asked of the last drive needs one.
        """
        for assertion, argument in (
            (parcels.assert_side_effects_ran, ["reserve"]),
            (parcels.assert_side_effects_not_ran, ["reserve"]),
            (parcels.assert_callbacks_ran, ["tell"]),
            (parcels.assert_failure_callbacks_ran, ["warn"]),
            (parcels.assert_state_trace, []),
        ):
            assert "Nothing was driven yet" in fails(assertion, argument)
        assert "Nothing was driven yet" in fails(parcels.assert_raised)
        assert "Nothing was driven yet" in fails(parcels.assert_not_raised)

    def test_state(self, parcels: Scenario, fails: Fails) -> None:
        """
        The database counts, not the memory; what could run now is told.
        """
        parcel = parcels.create_instance()
        parcel.state = "sent"
        told = fails(parcels.assert_state, parcel, "sent")
        assert "The state is 'new', expected 'sent'. Available now: ['pack']" in told
        assert parcel.state == "new"
        parcels.background_transition(parcels.create_instance(state="packed"), "send")
        told = fails(parcels.assert_state, parcel, "sent")
        assert "1. background call send: 'packed' -> 'sent'; through 'sending' -> 'sent'" in told
        assert "side effects book_courier; callbacks tell" in told
        Ticket.objects.filter(pk=parcel.pk).delete()
        assert "is gone; expected the state 'new'" in fails(parcels.assert_state, parcel, "new")

    def test_availability(self, parcels: Scenario, fails: Fails) -> None:
        """
        What is missing is told with every reason; a name nobody has is an error of the test.
        """
        parcel, visitor = parcels.create_instance(), get_user_model()(username="bob")
        parcels.assert_available(parcel, ["pack"])
        parcels.assert_not_available(parcel, ["send", "look"])
        parcels.assert_not_available(parcel, ["pack"], user=visitor)
        assert "Not available: {'pack': ['permission: You may not do this.']}" in fails(
            parcels.assert_available, parcel, ["pack"], user=visitor
        )
        assert "should not be: ['pack']" in fails(parcels.assert_not_available, parcel, ["send", "pack"])
        with pytest.raises(ValueError, match="no action \\['pakc'\\]"):
            parcels.assert_not_available(parcel, ["pakc"])

    def test_refusals(self, parcels: Scenario, fails: Fails) -> None:
        """
        The code is among the reasons.
        """
        parcel, visitor = parcels.create_instance(), get_user_model()(username="bob")
        parcels.assert_refused(parcel, "pack", "permission", user=visitor)
        parcels.assert_refused(parcel, "send", "source_state")
        assert "would not be refused; expected 'permission'" in fails(
            parcels.assert_refused, parcel, "pack", "permission"
        )
        assert "expected 'locked'" in fails(parcels.assert_refused, parcel, "send", "locked")

    def test_hooks(self, parcels: Scenario, fails: Fails) -> None:
        """
        H90: a bare text, an unknown name, a hook that raised: none of them passes.
        """
        parcel = parcels.create_instance()
        parcels.transition(parcel, "pack", fail_side_effect="reserve")
        assert "Did not run: ['reserve']. Ran: []" in fails(parcels.assert_side_effects_ran, ["reserve"])
        assert "reserve raised Exception('injected failure of reserve')" in fails(
            parcels.assert_callbacks_ran, ["tell"]
        )
        parcels.assert_failure_callbacks_ran(["warn"])
        parcels.assert_side_effects_not_ran(["reserve", "book_courier"])
        parcels.transition(parcel, "restart")
        assert "should not have: ['reserve']" in fails(parcels.assert_side_effects_not_ran, ["reserve"])
        assert "Did not run: ['warn']" in fails(parcels.assert_failure_callbacks_ran, ["warn"])
        for assertion in (parcels.assert_side_effects_ran, parcels.assert_side_effects_not_ran):
            with pytest.raises(TypeError, match="takes a list of names; found 'reserve'"):
                assertion("reserve")
            with pytest.raises(ValueError, match="no such hook: \\['tell'\\]"):
                assertion(["tell"])

    def test_errors(self, parcels: Scenario, fails: Fails) -> None:
        """
        What came out is compared by class and by a part of its text.
        """
        parcel = parcels.create_instance()
        parcels.transition(parcel, "pack", user=get_user_model()(username="bob"), expect_raises=TransitionForbidden)
        parcels.assert_raised()
        assert parcels.assert_raised(TransitionForbidden).reason == "permission"
        assert "expected <class 'KeyError'>" in fails(parcels.assert_raised, KeyError)
        assert "lacks 'no such text'" in fails(parcels.assert_raised, match="no such text")
        assert "let out TransitionForbidden" in fails(parcels.assert_not_raised)
        parcels.transition(parcel, "pack")
        assert "let nothing out" in fails(parcels.assert_raised)

    def test_traces_and_journeys(self, parcels: Scenario, fails: Fails) -> None:
        """
        Both are exact; each difference is told.
        """
        parcel = parcels.create_instance(state="broken")
        parcels.transition(parcel, "restart")
        assert "wrote the states ['new', 'packed'], expected ['packed']" in fails(
            parcels.assert_state_trace, ["packed"]
        )
        assert "1 steps were driven, expected 2" in fails(parcels.assert_journey, [{"action": "restart"}] * 2)
        told = fails(parcels.assert_journey, [{"action": "restart", "after": "new", "side_effects": []}])
        assert "Step 1: after is 'packed', expected 'new'; side_effects is ['reserve'], expected []" in told
        with pytest.raises(TypeError, match="no \\['effects'\\]"):
            parcels.assert_journey([{"action": "restart", "effects": []}])
        with pytest.raises(TypeError, match="takes a list of names"):
            parcels.assert_journey([JourneyStep(action="restart", callbacks="tell")])

    def test_history(self, parcels: Scenario, fails: Fails, clerk: Any) -> None:
        """
        All moves in order, with who made them.
        """
        clerk.is_staff = True
        parcel = parcels.create_instance()
        parcels.transition(parcel, "pack", user=clerk)
        parcels.assert_history(parcel, [("new", "packed", clerk)])
        assert "expected [('new', 'packed', 'boss')]" in fails(
            parcels.assert_history, parcel, [("new", "packed", "boss")]
        )
        assert "expected []" in fails(parcels.assert_history, parcel, [])
        parcels.assert_history(parcel, [("new", "packed", clerk.username)])
        namesake = get_user_model()(username=clerk.username, pk=clerk.pk + 1)
        assert f"expected [('new', 'packed', 'clerk (user {clerk.pk + 1})')]" in fails(
            parcels.assert_history, parcel, [("new", "packed", namesake)]
        )

    def test_rows(self, parcels: Scenario, fails: Fails) -> None:
        """
        Errors and owners are those of the newest row; an object without one fails.
        """
        parcel = parcels.create_instance(state="packed")
        assert "has no row of background work" in fails(parcels.assert_error_count, parcel, 0)
        parcels.background_transition(parcel, "send", fail_side_effect="book_courier")
        assert "1 errors were counted, expected 2" in fails(parcels.assert_error_count, parcel, 2)
        told = fails(parcels.assert_error_recorded, parcel, "no van")
        assert "which lacks 'no van'" in told
        assert "queue_name='django_logic', run_at=" in told
        assert "is declared by tests.testkit.shop.ParcelProcess" in fails(
            parcels.assert_transition_owner, parcel, "elsewhere.Process"
        )
        assert "is of 'send', expected 'pack'" in fails(
            parcels.assert_transition_owner, parcel, "tests.testkit.shop.ParcelProcess", transition_name="pack"
        )

    def test_fields_and_related_rows(self, parcels: Scenario, fails: Fails) -> None:
        """
        Values are read from the database.
        """
        parcel = parcels.create_instance()
        before = parcels.capture(parcel, ["note", "state"])
        parcels.transition(parcel, "pack")
        parcels.assert_changed(parcel, before, {"note": ("", "reserved "), "state": ("new", "packed")})
        assert "note went from '' to 'reserved ', expected from '' to 'x'" in fails(
            parcels.assert_changed, parcel, before, {"note": ("", "x")}
        )
        parcels.assert_unchanged(parcel, before, [])
        assert "Changed, and should not have: {'note'" in fails(parcels.assert_unchanged, parcel, before, ["note"])
        with pytest.raises(TypeError, match="takes a list"):
            parcels.capture(parcel, "note")
        parcels.assert_related_count(Ticket.objects, 1)
        assert "app.Ticket: 1 rows, expected 0" in fails(parcels.assert_related_count, Ticket.objects, 0)
