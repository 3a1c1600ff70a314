"""
Prove what a background call leaves behind when it returns, and what it leaves behind when it is refused: nothing.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser
from django.db import IntegrityError, connection, transaction

from django_logic import Action, Transition
from django_logic.background import BackgroundTransition, KwargsSerializationError, run_available
from django_logic.background.models import TransitionMessage
from django_logic.exceptions import (
    AlreadyInProgress,
    InvalidTransition,
    TransitionForbidden,
    TransitionNotAllowed,
    TransitionTemporarilyUnavailable,
)
from django_logic.models import StatusChange
from tests.app.hooked import Diary, fresh, moves, stored
from tests.app.models import Guarded, Parcel, Ticket
from tests.background import flows
from tests.background.flows import Flow, act, message, messages, work

pytestmark = pytest.mark.django_db(transaction=True)


def count_rows() -> int:
    """
    Count the rows of every object.
    """
    return TransitionMessage.objects.count()


def test_call_returns_true_with_the_row_and_the_busy_state_saved(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    A call writes the busy state and one open row, returns True, and has run no side effect.
    """
    flow(work(diary.hook("effect")))

    answer = ticket.flow.go()

    row = message(ticket)
    assert answer is True
    assert (row.is_completed, row.outcome, row.attempts_started, row.errors_count) == (False, "", 0, 0)
    assert (ticket.state, stored(ticket), moves(ticket, "flow")) == ("busy", "busy", [("new", "busy")])
    assert diary == []


def test_row_says_what_was_asked_for(flow: Flow, ticket: Ticket, clerk: Any) -> None:
    """
    The row names object, process, declaration, people, ids, queue, limits and keywords of the call.
    """
    process = flow(work(queue="critical", priority=-3, timeout=1.5, max_errors=7))

    ticket.flow.go(user=clerk, reason="a customer asked", lines=(1, 2))

    row = message(ticket)
    (change,) = StatusChange.objects.all()
    assert (row.app_label, row.model_name, row.instance_id, row.model_class) == (
        *("app", "ticket", str(ticket.pk)),
        "app.Ticket",
    )
    assert (row.process_name, row.field_name, row.transition_name, row.kind) == ("flow", "state", "go", "transition")
    assert row.process_class == row.owning_process_class == f"{flows.__name__}.{process.__name__}"
    assert (row.queue_name, row.priority, row.timeout_seconds, row.max_errors) == ("critical", -3, 1.5, 7)
    assert (row.user_id, row.actor_id, row.actor_label) == (str(clerk.pk), str(clerk.pk), "clerk")
    assert (row.reason, list(row.kwargs)) == ("a customer asked", ["lines"])
    assert (row.transition_id, row.root_id, row.parent_id) == (change.transition_id, change.transition_id, None)
    assert (row.started_at, row.completed_at, row.duration_ms, row.claim_token, row.worker) == (None,) * 4 + ("",)
    assert row.created == row.run_at
    assert str(row) == f"{row.pk}: flow.go of app.ticket#{ticket.pk}"


def test_row_without_a_queue_waits_in_the_default_one(flow: Flow, ticket: Ticket, settings: Any) -> None:
    """
    A transition that names no queue runs on the project's, read at the call; the built-in one is django_logic.
    """
    other = Ticket.objects.create()
    flow(work())

    ticket.flow.go()
    settings.DJANGO_LOGIC = {"DEFAULT_QUEUE": "backstage"}
    other.flow.go()

    assert [message(ticket).queue_name, message(other).queue_name] == ["django_logic", "backstage"]


def test_action_saves_a_row_and_leaves_the_state_alone(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    A BackgroundAction saves its row, keeps the object busy, and writes neither a state nor history, also when done.
    """
    flow(act(diary.hook("effect")), Transition("leave", ["new"], "gone"))

    answer = ticket.flow.act()
    with pytest.raises(TransitionTemporarilyUnavailable):
        ticket.flow.leave()
    ran = run_available()

    assert (answer, ran, diary) == (True, 1, [("effect", "new")])
    assert (stored(ticket), moves(ticket, "flow"), message(ticket).outcome) == ("new", [], "succeeded")
    assert ticket.flow.leave() is True


def test_row_without_a_busy_state_leaves_the_state_until_the_work_is_done(flow: Flow, ticket: Ticket) -> None:
    """
    Without in_progress_state the call writes the row alone; the attempt moves the object from where it was.
    """
    flow(work(in_progress_state=None))

    ticket.flow.go()
    before = (stored(ticket), moves(ticket, "flow"))
    run_available()

    assert before == ("new", [])
    assert (stored(ticket), moves(ticket, "flow")) == ("done", [("new", "done")])


def test_call_by_target_saves_the_row_of_the_action_that_leads_there(flow: Flow, ticket: Ticket) -> None:
    """
    transition_to() a background target accepts it like a call by action.
    """
    flow(work())

    answer = ticket.flow.transition_to("done", actor="shop")
    run_available()

    assert (answer, message(ticket).transition_name, message(ticket).outcome) == (True, "go", "succeeded")
    assert stored(ticket) == "done"


def test_call_from_async_code_saves_the_row(flow: Flow, ticket: Ticket) -> None:
    """
    The async twin accepts background work too.
    """
    flow(work())

    async def call() -> bool:
        return await ticket.flow.atransition("go")

    assert async_to_sync(call)() is True
    assert message(ticket).is_completed is False


def test_call_for_the_target_is_a_duplicate_without_a_row(flow: Flow) -> None:
    """
    An object that is where the work would take it is a duplicate: False, no row.
    """
    ticket = Ticket.objects.create(state="done")
    flow(work())

    assert ticket.flow.go() is False
    assert count_rows() == 0


def test_call_in_a_transaction_that_rolls_back_leaves_no_row(flow: Flow, ticket: Ticket) -> None:
    """
    Row and busy state live and die with the caller's transaction; afterwards the object is free.
    """
    flow(work())

    with transaction.atomic():
        accepted = ticket.flow.go()
        within = count_rows()
        transaction.set_rollback(True)
    ticket.refresh_from_db()

    assert (accepted, within, count_rows()) == (True, 1, 0)
    assert (stored(ticket), moves(ticket, "flow")) == ("new", [])
    assert ticket.flow.go() is True


def test_call_in_a_savepoint_that_rolls_back_leaves_the_rest(flow: Flow, ticket: Ticket) -> None:
    """
    Only the call in the savepoint is undone; the other one is committed with the transaction around.
    """
    other = Ticket.objects.create()
    flow(work())

    with transaction.atomic():
        other.flow.go()
        with transaction.atomic():
            ticket.flow.go()
            transaction.set_rollback(True)

    assert (messages(ticket), stored(ticket)) == ([], "new")
    assert (message(other).is_completed, stored(other)) == (False, "busy")


def test_second_call_is_refused_as_already_in_progress(flow: Flow, ticket: Ticket) -> None:
    """
    While a row is open a second background call, of this or another action, raises AlreadyInProgress, a 409.
    """
    flow(work(sources=["new", "busy"]), act(sources=["busy"]), act(action="never", sources=["done"]))
    ticket.flow.go()

    refusals = []
    for action in ("go", "act", "never"):
        with pytest.raises(AlreadyInProgress) as refused:
            getattr(fresh(ticket).flow, action)()
        refusals.append((refused.value.reason, refused.value.http_status, refused.value.action))

    assert refusals == [("background_in_flight", 409, action) for action in ("go", "act", "never")]
    assert str(message(ticket).pk) in str(refused.value)
    assert count_rows() == 1


def test_sync_call_is_refused_as_temporarily_unavailable_whatever_its_sources(flow: Flow, ticket: Ticket) -> None:
    """
    While a row is open a synchronous call is refused with 503 and runs nothing, even from the busy state.
    """
    ran: list[Any] = []
    flow(
        work(),
        Transition("stop", ["busy"], "stopped", side_effects=[lambda instance, **kw: ran.append(1)]),
        Transition("impossible", ["nowhere"], "stopped"),
        Action("look", "*", side_effects=[lambda instance, **kw: ran.append(2)]),
    )
    ticket.flow.go()

    found = []
    for action in ("stop", "impossible", "look"):
        with pytest.raises(TransitionTemporarilyUnavailable) as refused:
            getattr(ticket.flow, action)()
        found.append((type(refused.value), refused.value.reason, refused.value.http_status))

    assert found == [(TransitionTemporarilyUnavailable, "background_in_flight", 503)] * 3
    assert (ran, stored(ticket)) == ([], "busy")


def test_action_without_a_lock_passes_while_work_is_open(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    lock="none" takes no gate: an action of that kind runs beside open work.
    """
    flow(work(), Action("track", ["busy"], lock="none", side_effects=[diary.hook("track")]))
    ticket.flow.go()

    assert ticket.flow.track() is True
    assert diary.names == ["track"]


def test_gate_is_free_again_once_the_work_has_ended(flow: Flow, ticket: Ticket) -> None:
    """
    A row that has ended keeps nobody out.
    """
    flow(work(sources=["new", "done"]), Transition("reset", ["done"], "new"))
    ticket.flow.go()
    run_available()

    assert ticket.flow.reset() is True
    assert ticket.flow.go() is True
    assert [row.is_completed for row in messages(ticket)] == [True, False]


def test_two_processes_of_one_model_do_not_block_each_other(flow: Flow) -> None:
    """
    One open row is allowed for each object and process.
    """
    parcel = Parcel.objects.create()
    flow(work(), model=Parcel, field="parcel_status")
    flow(work(), model=Parcel, field="payment_status", process_name="cash")

    assert parcel.flow.go() is True
    assert parcel.cash.go() is True
    with pytest.raises(AlreadyInProgress):
        parcel.cash.go()
    assert run_available() == 2
    parcel.refresh_from_db()
    assert (parcel.parcel_status, parcel.payment_status) == ("done", "done")


def test_refused_guards_leave_no_row(flow: Flow, diary: Diary, ticket: Ticket, clerk: Any) -> None:
    """
    Permissions and conditions are judged at the call; a no leaves no row, no state and no history.
    """
    flow(
        work(action="forbidden", permissions=[diary.hook("permission", answer=False)]),
        work(action="unmet", conditions=[diary.hook("condition", answer=False)]),
        work(action="elsewhere", sources=["somewhere"]),
    )

    with pytest.raises(TransitionForbidden):
        ticket.flow.forbidden(user=clerk)
    with pytest.raises(TransitionForbidden):
        ticket.flow.forbidden(user=AnonymousUser())
    with pytest.raises(TransitionNotAllowed) as unmet:
        ticket.flow.unmet()
    with pytest.raises(InvalidTransition):
        ticket.flow.elsewhere()

    assert unmet.value.reason == "condition"
    assert (count_rows(), stored(ticket), moves(ticket, "flow")) == (0, "new", [])


def test_guards_are_not_asked_again_by_the_attempt(flow: Flow, diary: Diary, ticket: Ticket, clerk: Any) -> None:
    """
    What was accepted is done: conditions and permissions are asked once, at the call.
    """
    flow(work(permissions=[diary.hook("permission")], conditions=[diary.hook("condition")]))

    ticket.flow.go(user=clerk)
    run_available()

    assert diary.names == ["permission", "condition"]
    assert stored(ticket) == "done"


def test_call_that_expects_another_version_leaves_no_row(flow: Flow, ticket: Ticket) -> None:
    """
    expected_version= refuses a stale background call too, and no hook gets it.
    """
    seen: list[Any] = []
    flow(work(lambda instance, **kw: seen.append("expected_version" in kw), sources=["new", "done"]))

    with pytest.raises(TransitionNotAllowed) as stale:
        ticket.flow.go(expected_version=3)
    accepted = ticket.flow.go(expected_version=0)
    run_available()

    assert (stale.value.reason, accepted, seen) == ("stale_version", True, [False])


def test_keyword_that_can_not_be_stored_is_refused_at_the_call(flow: Flow, ticket: Ticket) -> None:
    """
    The refusal names the call and the path inside the keyword; no row, no busy state, and the object is free.
    """
    process = flow(work())

    with pytest.raises(KwargsSerializationError) as refused:
        ticket.flow.go(lines=[{"price": 1}, {"price": object()}])

    assert refused.value.path == "lines[1]['price']"
    assert "lines[1]['price']" in str(refused.value)
    assert process.__name__ in str(refused.value)
    assert (count_rows(), stored(ticket), ticket.state) == (0, "new", "new")
    assert ticket.flow.go(lines=[1]) is True


@pytest.mark.parametrize("name", ["request", "context", "exception", "state", "instance"])
def test_engine_names_are_refused_before_anything_is_touched(flow: Flow, ticket: Ticket, name: str) -> None:
    """
    The engine's own names raise TypeError and save nothing.
    """
    flow(work())

    with pytest.raises(TypeError, match=name):
        ticket.flow.go(**{name: 1})

    assert (count_rows(), stored(ticket)) == (0, "new")


def test_busy_state_that_the_database_refuses_is_told_as_it_is(flow: Flow) -> None:
    """
    A constraint of the project that refuses the busy state stays its own IntegrityError, and no row is left.
    """
    guarded = Guarded.objects.create()
    flow(work(in_progress_state="forbidden busy"), model=Guarded)

    with pytest.raises(IntegrityError, match="app_guarded_state"):
        guarded.flow.go()

    assert (count_rows(), stored(guarded), guarded.state) == (0, "new", "new")
    assert moves(guarded, "flow") == []


def test_busy_state_without_a_row_is_a_source_again(flow: Flow, ticket: Ticket) -> None:
    """
    After a lost row the busy state counts as a source: the call saves a row alone, and the attempt goes on from there.
    """
    flow(work())
    Ticket.objects.filter(pk=ticket.pk).update(state="busy")
    ticket.refresh_from_db()

    listed = ticket.flow.get_available_actions()
    answer = ticket.flow.go()
    history = moves(ticket, "flow")
    run_available()

    assert (listed, answer, history) == (["go"], True, [])
    assert (stored(ticket), moves(ticket, "flow")) == ("done", [("busy", "done")])


def test_busy_state_is_no_source_of_another_declaration(flow: Flow, ticket: Ticket) -> None:
    """
    Only the declaration whose busy state it is may start from it.
    """
    flow(work(), work(action="other", in_progress_state="busy elsewhere"))
    Ticket.objects.filter(pk=ticket.pk).update(state="busy")

    with pytest.raises(InvalidTransition):
        fresh(ticket).flow.other()

    assert count_rows() == 0


@pytest.mark.parametrize("lock", ["row", "nowait"])
def test_call_within_a_callers_transaction_keeps_the_row_locked(flow: Flow, ticket: Ticket, lock: str) -> None:
    """
    Several background calls of several objects fit into one transaction.
    """
    other = Ticket.objects.create()
    flow(work(lock=lock))

    with transaction.atomic():
        answers = [ticket.flow.go(), other.flow.go()]
        with pytest.raises(AlreadyInProgress):
            ticket.flow.go()

    assert answers == [True, True]
    assert run_available() == 2


def test_ids_given_by_a_hook_chain_the_row(flow: Flow, ticket: Ticket) -> None:
    """
    transition_id= and root_id= of a caller become parent and root of the row.
    """
    flow(work())
    parent, root = UUID(int=1), UUID(int=2)

    ticket.flow.go(tr_id=parent, root_id=root)

    row = message(ticket)
    assert (row.parent_id, row.root_id) == (parent, root)
    assert row.transition_id not in (parent, root)
    assert row.kwargs == {}


def test_database_allows_one_open_row_for_each_object_and_process(flow: Flow, ticket: Ticket) -> None:
    """
    The database itself refuses a second open row of kind transition; rows that follow and ended ones are free.
    """
    if not connection.features.supports_partial_indexes:
        pytest.skip("this database has no partial unique index; the lock on the object's row keeps the order")
    flow(work())
    ticket.flow.go()
    row = message(ticket)
    row.pk = None

    with pytest.raises(IntegrityError), transaction.atomic():
        row.save(force_insert=True)
    row.kind = "callback"
    row.save(force_insert=True)

    assert [found.kind for found in messages(ticket)] == ["transition", "callback"]


@pytest.mark.parametrize(
    "values",
    [{"is_completed": True}, {"outcome": "failed"}, {"is_completed": True, "outcome": "succeeded"}],
)
def test_database_ties_the_end_of_a_row_to_an_outcome_and_a_time(
    flow: Flow, ticket: Ticket, values: dict[str, Any]
) -> None:
    """
    The database refuses a row that has ended without an outcome or a time, and an open one with an outcome.
    """
    flow(work())
    ticket.flow.go()

    with pytest.raises(IntegrityError), transaction.atomic():
        TransitionMessage.objects.update(**values)


def test_background_transition_has_no_fast_path_past_the_gate(flow: Flow, ticket: Ticket) -> None:
    """
    A plain move of a process with background work meets the gate although nothing else has to happen under the lock.
    """
    flow(Transition("leave", ["new", "busy"], "gone"), BackgroundTransition("go", ["new"], "done"))
    ticket.flow.go()

    with pytest.raises(TransitionTemporarilyUnavailable):
        ticket.flow.leave()

    assert stored(ticket) == "new"
