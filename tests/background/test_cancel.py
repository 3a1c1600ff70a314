"""
Prove how background work is cancelled: before it starts, while it pauses, while it runs, and after it has ended.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from django_logic import Transition
from django_logic.background import Cancelled, attempt, run_available, sync_execution
from django_logic.background.cancel import cancel_message
from django_logic.background.models import Cancellation, TransitionMessage
from django_logic.clock import FromNow
from django_logic.exceptions import TransitionNotAllowed
from tests.app.hooked import Boom, Diary, fresh, moves, stored
from tests.app.models import Product, Ticket
from tests.background.flows import Flow, act, message, messages, new_ticket, run_out, work
from tests.races.together import Worker

pytestmark = pytest.mark.django_db(transaction=True)

both = pytest.mark.django_db(databases=["default", "other"], transaction=True)


def product(instance: Any, **keywords: Any) -> None:
    """
    Write something that only a finished attempt may leave.
    """
    Product.objects.create(name="effect")


@pytest.mark.parametrize("delay", [0, 3600])
def test_row_that_has_not_started_ends_at_once(
    flow: Flow, diary: Diary, ticket: Ticket, clerk: Any, delay: float
) -> None:
    """
    A waiting or delayed row ends as cancelled: failed_state, failure callbacks with Cancelled, and no side effect.
    """
    flow(
        work(
            diary.hook("effect"),
            callbacks=[diary.hook("after")],
            failure_callbacks=[diary.hook("compensate")],
            next_transition="on",
        ),
        work(action="on", sources=["done"], target="over"),
        Transition("reset", ["failed"], "new"),
    )
    ticket.flow.go(delay=delay, actor="shop")

    answer = ticket.flow.cancel_background(user=clerk, reason="customer called")
    run_out()

    row = message(ticket)
    assert answer is True
    assert (row.is_completed, row.outcome, row.ended_in_failure) == (True, "cancelled", True)
    assert (row.attempts_started, row.errors_count, row.duration_ms) == (0, 0, None)
    assert "clerk" in row.last_error_message
    assert "customer called" in row.last_error_message
    assert (stored(ticket), moves(ticket, "flow")) == ("failed", [("new", "busy"), ("busy", "failed")])
    ((name, state, error),) = diary
    assert (name, state, type(error)) == ("compensate", "failed", Cancelled)
    assert "customer called" in str(error)
    assert fresh(ticket).flow.reset() is True


def test_history_tells_who_cancelled(flow: Flow, ticket: Ticket, clerk: Any) -> None:
    """
    The move to failed_state keeps the call's actor and says in its metadata who cancelled and why.
    """
    flow(work())
    ticket.flow.go(actor="shop", reason="asked")
    ticket.flow.cancel_background(user=clerk, reason="customer called")

    busy, failed = ticket.flow.history
    assert (failed.actor_label, failed.reason, failed.transition_id) == ("shop", "asked", busy.transition_id)
    assert failed.metadata == {"cancelled_by": "clerk", "cancel_reason": "customer called"}


def test_row_in_its_retry_pause_is_cancelled(flow: Flow, ticket: Ticket) -> None:
    """
    What has failed before keeps its count of errors and ends at once.
    """
    flow(work(lambda instance, **kw: 1 / 0))
    ticket.flow.go()
    run_available()

    answer = ticket.flow.cancel_background()

    row = message(ticket)
    assert (answer, row.outcome, row.attempts_started, row.errors_count) == (True, "cancelled", 1, 1)
    assert stored(ticket) == "failed"


def test_cancelled_work_without_failed_state_may_start_again(flow: Flow, ticket: Ticket) -> None:
    """
    Without failed_state the busy state stays, and counts as a source since no row is open.
    """
    flow(work(failed_state=None))
    ticket.flow.go()
    ticket.flow.cancel_background()

    assert stored(ticket) == "busy"
    assert fresh(ticket).flow.go() is True
    assert [row.outcome for row in messages(ticket)] == ["cancelled", ""]


def test_cancelled_action_writes_its_failed_state(flow: Flow, ticket: Ticket) -> None:
    """
    A BackgroundAction is cancelled the same way; without failed_state the object stays where it is.
    """
    other = new_ticket()
    flow(act(failed_state="failed"), act(action="harmless"))
    ticket.flow.act()
    other.flow.harmless()

    assert [ticket.flow.cancel_background(), other.flow.cancel_background()] == [True, True]
    assert [stored(ticket), stored(other)] == ["failed", "new"]


def test_object_without_open_work_can_not_be_cancelled(flow: Flow, ticket: Ticket) -> None:
    """
    Nothing open, or ended already: refused, nothing changes.
    """
    flow(work())
    with pytest.raises(TransitionNotAllowed, match="no background work is open"):
        ticket.flow.cancel_background()
    ticket.flow.go()
    run_available()

    with pytest.raises(TransitionNotAllowed):
        ticket.flow.cancel_background()
    with pytest.raises(TransitionNotAllowed):
        cancel_message(message(ticket).pk)
    with pytest.raises(TransitionNotAllowed):
        cancel_message(-1)

    assert (message(ticket).outcome, stored(ticket), Cancellation.objects.count()) == ("succeeded", "done", 0)


def test_object_moved_meanwhile_is_left_alone_by_a_cancel(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    A manual fix wins over a cancel: the row ends as superseded, no failed_state, no hook.
    """
    flow(work(failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()
    Ticket.objects.update(state="mended by hand")

    answer = ticket.flow.cancel_background()

    assert (answer, message(ticket).outcome, stored(ticket), diary) == (True, "superseded", "mended by hand", [])


def needs_skipped_locks() -> None:
    """
    Skip a test in which two sessions write.
    """
    if not connection.features.has_select_for_update_skip_locked:
        pytest.skip("this database has one writer at a time")


def test_running_attempt_stops_at_its_next_step(flow: Flow, diary: Diary, ticket: Ticket, clerk: Any) -> None:
    """
    A cancel of a running attempt is a request: False, and no further side effect begins; all is undone.
    """
    needs_skipped_locks()
    answers: list[Any] = []

    def first(instance: Any, **keywords: Any) -> None:
        product(instance)
        asked = Worker(lambda: fresh(ticket).flow.cancel_background(user=clerk, reason="customer called"))
        answers.append(asked.result())

    flow(work(first, diary.hook("second"), failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()
    run_out()

    row = message(ticket)
    assert (answers, diary.names) == ([False], ["compensate"])
    assert (row.outcome, row.ended_in_failure, row.errors_count) == ("cancelled", True, 0)
    assert "customer called" in row.last_error_message
    assert (stored(ticket), Product.objects.count(), Cancellation.objects.count()) == ("failed", 0, 0)
    assert type(diary[0][2]) is Cancelled


@pytest.mark.parametrize("is_action", [False, True])
def test_running_attempt_can_not_commit_once_it_was_cancelled(
    flow: Flow, diary: Diary, ticket: Ticket, is_action: bool
) -> None:
    """
    A request that comes during the last side effect fences the commit off.
    """
    needs_skipped_locks()

    def last(instance: Any, **keywords: Any) -> None:
        product(instance)
        Worker(lambda: fresh(ticket).flow.cancel_background()).result()

    slots: dict[str, Any] = {"action": "go", "callbacks": [diary.hook("after")]}
    flow(act(last, failed_state="failed", **slots) if is_action else work(last, **slots))
    ticket.flow.go()
    run_out()

    assert (message(ticket).outcome, stored(ticket), Product.objects.count()) == ("cancelled", "failed", 0)
    assert diary == []
    assert ("busy", "done") not in moves(ticket, "flow")


def test_request_is_kept_when_the_attempt_fails_by_itself(flow: Flow, ticket: Ticket) -> None:
    """
    A cancelled attempt that raises on its own is not tried again: the next claim ends the row.
    """
    needs_skipped_locks()
    runs: list[int] = []

    def effect(instance: Any, **keywords: Any) -> None:
        runs.append(1)
        Worker(lambda: fresh(ticket).flow.cancel_background()).result()
        raise Boom

    flow(work(effect))
    ticket.flow.go()
    run_out()

    assert (message(ticket).outcome, stored(ticket), runs) == ("cancelled", "failed", [1])
    assert not Cancellation.objects.exists()


def test_request_to_a_worker_that_died_ends_the_row_at_the_next_claim(flow: Flow, ticket: Ticket) -> None:
    """
    A request nobody could answer any more is found by whoever claims the row next.
    """
    flow(work(product))
    ticket.flow.go()
    Cancellation.objects.create(message_id=message(ticket).pk, reason="customer called", actor_label="clerk")
    run_out()

    assert (message(ticket).outcome, stored(ticket), Product.objects.count()) == ("cancelled", "failed", 0)
    assert "customer called" in message(ticket).last_error_message


def test_second_request_changes_nothing(flow: Flow, ticket: Ticket) -> None:
    """
    Asking twice is asking once; the first reason stays.
    """
    needs_skipped_locks()
    answers: list[Any] = []

    def effect(instance: Any, **keywords: Any) -> None:
        askers = (Worker(partial(fresh(ticket).flow.cancel_background, reason=text)) for text in ("first", "second"))
        answers.extend(asker.result() for asker in askers)

    flow(work(effect))
    ticket.flow.go()
    run_available()

    assert answers == [False, False]
    assert "first" in message(ticket).last_error_message


def test_callback_row_is_cancelled_by_its_id(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    A row that follows a transition can be cancelled, spent ones too: it ends, the object stays, those behind it run.
    """
    flow(work(callbacks=[diary.hook("mail", Boom()), diary.hook("last")], max_errors=5))
    ticket.flow.go()
    run_available()
    head, _behind = messages(ticket, "callback")

    answer = cancel_message(head.pk, actor="operator", reason="no such address")
    run_out()

    head.refresh_from_db()
    assert (answer, head.outcome, diary.names) == (True, "cancelled", ["mail", "last"])
    assert (stored(ticket), message(ticket).outcome) == ("done", "succeeded")


def test_cancel_within_a_transaction_lives_and_dies_with_it(flow: Flow, ticket: Ticket) -> None:
    """
    A rollback takes the cancel back: the row is open and runs.
    """
    flow(work())
    ticket.flow.go()

    with transaction.atomic():
        answer = ticket.flow.cancel_background()
        within = stored(ticket)
        transaction.set_rollback(True)

    assert (answer, within, message(ticket).is_completed) == (True, "failed", False)
    assert (run_available(), stored(ticket)) == (1, "done")


@pytest.mark.usefixtures("only_postgres")
def test_cancel_that_meets_a_held_object_is_not_forgotten(flow: Flow, ticket: Ticket) -> None:
    """
    Where failed_state can't be written now, since somebody holds the object, the request stays and ends the row later.
    """
    flow(work(product))
    ticket.flow.go()

    def cancel_impatiently() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '100ms'")
        return fresh(ticket).flow.cancel_background(reason="customer called")

    with transaction.atomic():
        Ticket.objects.filter(pk=ticket.pk).update(note="held")
        asked = Worker(cancel_impatiently).join()
    run_out()

    assert (asked.value, asked.error) == (False, None)
    assert (message(ticket).outcome, stored(ticket), Product.objects.count()) == ("cancelled", "failed", 0)


def test_cancel_in_sync_mode_runs_failure_callbacks(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    In sync mode the failure callbacks of a cancelled row have run when the cancel returns.
    """
    flow(work(failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()

    with sync_execution():
        ticket.flow.cancel_background()

    assert diary.names == ["compensate"]


def test_cancelled_work_that_is_not_durable_is_compensated_at_once(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    durable_callbacks = False: failure callbacks run in the process that cancels.
    """
    flow(work(failure_callbacks=[diary.hook("compensate")]), durable_callbacks=False)
    ticket.flow.go()
    ticket.flow.cancel_background()

    assert diary.names == ["compensate"]


@both
def test_cancel_stays_on_the_objects_alias(flow: Flow) -> None:
    """
    The row of another database is cancelled there.
    """
    there = Ticket.objects.using("other").create()
    flow(work())
    there.flow.go()

    assert there.flow.cancel_background() is True
    assert (message(there).outcome, stored(there)) == ("cancelled", "failed")
    assert not TransitionMessage.objects.using("default").exists()


def test_cancel_during_prepare_ends_the_attempt_before_its_side_effects(
    flow: Flow, diary: Diary, ticket: Ticket
) -> None:
    """
    A row whose prepare hooks run is kept by its lease: the cancel is a request, and what was prepared is compensated.
    """
    answers: list[bool] = []
    flow(
        work(
            product,
            prepare=[lambda instance, **kw: answers.append(fresh(ticket).flow.cancel_background())],
            failure_callbacks=[diary.hook("compensate")],
        )
    )
    ticket.flow.go()
    outcome = attempt.run(message(ticket).pk)
    run_out()

    assert outcome is not None
    assert (answers, str(outcome.ended)) == ([False], "cancelled")
    assert (message(ticket).outcome, stored(ticket), Product.objects.count()) == ("cancelled", "failed", 0)
    assert diary.names == ["compensate"]
    assert moves(ticket, "flow") == [("new", "busy"), ("busy", "failed")]


def test_cancelled_row_whose_lease_has_ended_is_lost_to_its_attempt(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    A claim that outlived its lease may be ended by a cancel; the attempt that still runs then keeps nothing.
    """

    def outlive(instance: Any, **keywords: Any) -> None:
        TransitionMessage.objects.update(run_at=FromNow(-1))
        fresh(ticket).flow.cancel_background()

    flow(work(product, prepare=[outlive], failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()
    outcome = attempt.run(message(ticket).pk)
    run_out()

    assert outcome is not None
    assert str(outcome.ended) == "lost"
    assert (message(ticket).outcome, stored(ticket), Product.objects.count()) == ("cancelled", "failed", 0)
    assert "compensate" in diary.names


def test_busy_instance_says_so_in_memory_after_a_cancel(flow: Flow, ticket: Ticket) -> None:
    """
    The instance the cancel was called on holds the state the database has afterwards.
    """
    flow(work())
    ticket.flow.go()

    ticket.flow.cancel_background()

    assert ticket.state == stored(ticket) == "failed"


def test_accessor_takes_keywords_only(flow: Flow, ticket: Ticket, clerk: Any) -> None:
    """
    A user given by position is a TypeError, as for every call, and the name is no template's to call.
    """
    flow(work())
    ticket.flow.go()

    with pytest.raises(TypeError):
        ticket.flow.cancel_background(clerk)

    assert ticket.flow.cancel_background.alters_data
    assert message(ticket).is_completed is False
