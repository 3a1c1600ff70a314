"""
Prove what an attempt does that succeeds, and how one ends whose object went another way.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction

from django_logic.background import attempt, run_available, sync_execution
from django_logic.background.models import TransitionMessage
from django_logic.models import StatusChange
from tests.app.hooked import Boom, Diary, fresh, moves, sequences, stored
from tests.app.models import Guarded, Product, Saved, Ticket
from tests.background.flows import AT_ONCE, Flow, act, make_due, message, messages, new_ticket, run_out, work
from tests.races.together import Worker

pytestmark = pytest.mark.django_db(transaction=True)


def test_attempt_writes_target_history_and_the_end_of_its_row(flow: Flow, ticket: Ticket, clerk: Any) -> None:
    """
    One attempt moves the object, records the move with the call's ids, actor and reason, and ends the row.
    """
    flow(work())
    ticket.flow.go(user=clerk, reason="asked")

    outcome = attempt.run(message(ticket).pk)

    row = message(ticket)
    busy, done = StatusChange.objects.order_by("sequence")
    assert outcome is not None
    assert (outcome.ended, outcome.message_id, outcome.error, outcome.pause) == ("succeeded", row.pk, None, None)
    assert (row.is_completed, row.outcome, row.ended_in_failure, row.errors_count) == (True, "succeeded", False, 0)
    assert (row.attempts_started, row.claim_token, row.last_error_message) == (1, None, "")
    assert row.started_at is not None
    assert row.completed_at is not None
    assert row.created <= row.started_at <= row.completed_at
    assert row.duration_ms is not None
    assert [(busy.from_state, busy.to_state), (done.from_state, done.to_state)] == [("new", "busy"), ("busy", "done")]
    for change in (busy, done):
        assert (change.transition_id, change.root_id, change.parent_id) == (row.transition_id, row.root_id, None)
        assert (change.actor_id, change.actor_label, change.reason) == (str(clerk.pk), "clerk", "asked")
        assert change.action == "go"
    assert sequences(ticket, "flow") == [1, 2]


def test_row_says_who_claimed_it(flow: Flow, ticket: Ticket) -> None:
    """
    A claim leaves the claimant's name and, on PostgreSQL, its session on the row.
    """
    seen: list[Any] = []

    def look(instance: Any, **keywords: Any) -> None:
        row = message(ticket)
        seen.append(
            (row.worker, row.backend_pid, row.attempts_started, row.claim_token is None, row.started_at is None)
        )

    flow(work(look))
    ticket.flow.go()
    run_available()

    ((worker, session, started, is_free, is_unstarted),) = seen
    assert worker.startswith("process ")
    assert (started, is_free, is_unstarted) == (1, False, False)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            assert cursor.fetchone() == (session,)


def test_started_attempt_is_seen_by_others(flow: Flow, ticket: Ticket) -> None:
    """
    The claim is committed before the work begins: another session sees the count and the time of the start.
    """
    if not connection.features.has_select_for_update:
        pytest.skip("this database shows no other session what is open")
    seen: list[Any] = []

    def look(instance: Any, **keywords: Any) -> None:
        row = Worker(lambda: message(ticket)).result()
        seen.append((row.attempts_started, row.errors_count, row.started_at is None, row.claim_token is None))

    flow(work(look))
    ticket.flow.go()
    run_available()

    assert seen == [(1, 0, False, False)]


def test_side_effects_run_in_order_on_the_busy_object_before_the_write(
    flow: Flow, diary: Diary, ticket: Ticket
) -> None:
    """
    Side effects see the busy state, one after the other; callbacks see the target.
    """
    flow(work(diary.hook("first"), diary.hook("second"), callbacks=[diary.hook("after"), diary.hook("last")]))

    ticket.flow.go()
    run_available()

    assert diary == [("first", "busy"), ("second", "busy"), ("after", "done"), ("last", "done")]


def test_attempt_works_on_the_object_as_it_is_then(flow: Flow, ticket: Ticket) -> None:
    """
    The object is loaded afresh: edits made since the call are seen, and edits made by hooks in memory are not saved.
    """
    seen: list[str] = []

    def effect(instance: Any, **keywords: Any) -> None:
        seen.append(instance.note)
        instance.note = "in memory only"

    flow(work(effect))
    ticket.flow.go()
    Ticket.objects.filter(pk=ticket.pk).update(note="edited")
    run_available()

    assert (seen, stored(ticket, "note"), stored(ticket)) == (["edited"], "edited", "done")


def test_what_a_side_effect_saves_of_the_object_is_kept(flow: Flow, ticket: Ticket) -> None:
    """
    A side effect may save the whole object; the move is written all the same.
    """

    def effect(instance: Any, **keywords: Any) -> None:
        instance.note = "labelled"
        instance.save()

    flow(work(effect))
    ticket.flow.go()
    run_available()

    assert (stored(ticket, "note"), stored(ticket)) == ("labelled", "done")


def test_state_that_a_hook_assigns_in_memory_changes_nothing(flow: Flow, ticket: Ticket) -> None:
    """
    An assignment to the state column of the instance is no move.
    """

    def effect(instance: Any, **keywords: Any) -> None:
        instance.state = "nonsense"

    flow(work(effect))
    ticket.flow.go()
    run_available()

    assert (stored(ticket), moves(ticket, "flow")) == ("done", [("new", "busy"), ("busy", "done")])


def test_ordinary_edits_are_not_blocked_by_a_running_attempt(flow: Flow, ticket: Ticket) -> None:
    """
    The object's row is not locked while side effects run: others edit it meanwhile, and their edit survives.
    """
    if not connection.features.has_select_for_update:
        pytest.skip("this database has one writer at a time")

    def edit() -> None:
        with transaction.atomic():
            Ticket.objects.filter(pk=ticket.pk).update(note="meanwhile")

    flow(work(lambda instance, **kw: Worker(edit).result()))
    ticket.flow.go()
    run_available()

    assert (stored(ticket), stored(ticket, "note")) == ("done", "meanwhile")


@pytest.mark.parametrize("busy", ["busy", None])
def test_object_moved_while_the_row_waited_is_left_alone(flow: Flow, diary: Diary, ticket: Ticket, busy: Any) -> None:
    """
    A manual move while the row waits wins: no hook runs, no error counts, and the note says what was found.
    """
    flow(
        work(
            diary.hook("effect"),
            in_progress_state=busy,
            callbacks=[diary.hook("after")],
            failure_callbacks=[diary.hook("compensate")],
        )
    )
    ticket.flow.go()
    history = moves(ticket, "flow")
    Ticket.objects.filter(pk=ticket.pk).update(state="mended by hand")

    outcome = attempt.run(message(ticket).pk)

    row = message(ticket)
    assert outcome is not None
    assert outcome.ended == row.outcome == "superseded"
    assert (row.is_completed, row.ended_in_failure, row.errors_count) == (True, False, 0)
    assert row.last_error_message.startswith("[superseded]")
    assert "mended by hand" in row.last_error_message
    assert (stored(ticket), moves(ticket, "flow"), diary) == ("mended by hand", history, [])
    assert len(messages(ticket)) == 1


def test_object_moved_between_source_states_is_moved_from_where_it_is(flow: Flow, ticket: Ticket) -> None:
    """
    Without a busy state any source will do, and the history tells the one that was found.
    """
    flow(work(sources=["new", "paid"], in_progress_state=None))
    ticket.flow.go()
    Ticket.objects.filter(pk=ticket.pk).update(state="paid")
    run_available()

    assert (stored(ticket), moves(ticket, "flow")) == ("done", [("paid", "done")])


def test_hook_that_moves_the_object_by_raw_sql_undoes_its_own_attempt(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    The write notices that the object left its state: everything is rolled back, the hook's own move included.
    """

    def effect(instance: Any, **keywords: Any) -> None:
        Product.objects.create(name="effect")
        Ticket.objects.filter(pk=instance.pk).update(state="moved")

    flow(work(effect, callbacks=[diary.hook("after")], failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()
    outcome = attempt.run(message(ticket).pk)

    assert outcome is not None
    assert outcome.ended == message(ticket).outcome == "superseded"
    assert (stored(ticket), Product.objects.count(), diary) == ("busy", 0, [])
    assert moves(ticket, "flow") == [("new", "busy")]


def test_object_moved_by_others_while_the_work_ran_stays_where_they_put_it(flow: Flow, ticket: Ticket) -> None:
    """
    A foreign move during the side effects wins: the attempt's writes are undone and its row is superseded.
    """
    if not connection.features.has_select_for_update:
        pytest.skip("this database has one writer at a time")

    def effect(instance: Any, **keywords: Any) -> None:
        Product.objects.create(name="effect")
        Worker(lambda: Ticket.objects.filter(pk=instance.pk).update(state="mended by hand")).result()

    flow(work(effect))
    ticket.flow.go()
    run_available()

    row = message(ticket)
    assert (row.outcome, row.errors_count, row.ended_in_failure) == ("superseded", 0, False)
    assert (stored(ticket), Product.objects.count()) == ("mended by hand", 0)
    assert moves(ticket, "flow") == [("new", "busy")]


def test_object_deleted_while_the_row_waited_ends_it_without_hooks(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    An object that is gone makes its row unrestorable at once; nothing runs.
    """
    flow(work(diary.hook("effect"), failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()
    row = message(ticket)
    Ticket.objects.all().delete()

    outcome = attempt.run(row.pk)

    row.refresh_from_db()
    assert outcome is not None
    assert (outcome.ended, row.outcome, row.ended_in_failure) == ("unrestorable", "unrestorable", True)
    assert row.last_error_message.startswith("[unrestorable]")
    assert f"app.ticket#{ticket.pk}" in row.last_error_message
    assert diary == []
    assert TransitionMessage.objects.count() == 1


def test_object_that_its_own_side_effect_deletes_ends_the_row(flow: Flow, ticket: Ticket) -> None:
    """
    A side effect that deletes its object leaves no state to write: the attempt is undone and the row ends.
    """
    flow(work(lambda instance, **kw: instance.delete()))
    ticket.flow.go()
    row = message(ticket)

    run_available()

    row.refresh_from_db()
    assert row.is_completed
    assert (row.outcome, stored(ticket)) == ("superseded", "busy")


def test_running_attempt_is_claimed_by_nobody_else(flow: Flow, ticket: Ticket) -> None:
    """
    While an attempt holds its row another claimant gets None, whatever the lease says.
    """
    if not connection.features.has_select_for_update_skip_locked:
        pytest.skip("this database can't skip what another session holds")
    found: list[Any] = []

    def effect(instance: Any, **keywords: Any) -> None:
        found.append(Worker(lambda: (attempt.run(message(ticket).pk), run_available())).result())

    flow(work(effect))
    ticket.flow.go()
    run_available()

    assert found == [(None, 0)]
    assert (message(ticket).attempts_started, stored(ticket)) == (1, "done")


def test_leased_row_waits_for_its_attempt(flow: Flow, ticket: Ticket) -> None:
    """
    A claimed row is not due before its lease ends; then the attempt that left no record is entered as lost.
    """

    class Pulled(BaseException):
        pass

    def effect(instance: Any, **keywords: Any) -> None:
        if message(ticket).attempts_started == 1:
            Product.objects.create(name="effect")
            raise Pulled

    flow(work(effect))
    ticket.flow.go()
    with pytest.raises(Pulled):
        run_available()
    leased = message(ticket)

    assert (run_available(), Product.objects.count()) == (0, 0)
    assert (leased.attempts_started, leased.errors_count, leased.claim_token is None) == (1, 0, False)
    make_due()
    assert run_available() == 1
    row = message(ticket)
    assert (row.outcome, row.attempts_started, row.errors_count) == ("succeeded", 2, 1)
    assert row.last_error_message.startswith("[lost]")
    assert row.last_error_dt is not None


def test_attempts_that_leave_no_record_end_in_failed_state(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    Even work that kills its process each time ends: the claim after the last attempt takes the failure path.
    """

    class Pulled(BaseException):
        pass

    def effect(instance: Any, **keywords: Any) -> None:
        raise Pulled

    flow(work(effect, max_errors=2, failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()
    for _ in range(2):
        make_due()
        with pytest.raises(Pulled):
            run_available()
    make_due()

    ran = run_available()

    row = message(ticket)
    assert (ran, row.outcome, row.attempts_started, row.errors_count) == (2, "failed", 2, 2)
    assert (row.last_error_message.startswith("[lost]"), row.duration_ms) == (True, None)
    assert stored(ticket) == "failed"
    ((name, state, error),) = diary
    assert (name, state) == ("compensate", "failed")
    assert "[lost]" in str(error)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupt_leaves_nothing_written_and_reaches_the_caller(
    flow: Flow, ticket: Ticket, kind: type[BaseException]
) -> None:
    """
    What is no Exception is no failure of the work: it passes through, the attempt's writes are undone.
    """

    def effect(instance: Any, **keywords: Any) -> None:
        Product.objects.create(name="effect")
        raise kind

    flow(work(effect))
    ticket.flow.go()

    with pytest.raises(kind):
        run_available()

    assert (Product.objects.count(), stored(ticket), message(ticket).is_completed) == (0, "busy", False)
    assert not connections["default"].in_atomic_block


def test_ended_row_is_not_claimed_again(flow: Flow, ticket: Ticket) -> None:
    """
    attempt.run() of a row that has ended, or never was, returns None and runs nothing.
    """
    flow(work())
    ticket.flow.go()
    run_available()

    assert attempt.run(message(ticket).pk) is None
    assert attempt.run(-1) is None
    assert moves(ticket, "flow") == [("new", "busy"), ("busy", "done")]


def test_attempt_in_a_callers_transaction_lives_and_dies_with_it(flow: Flow, ticket: Ticket) -> None:
    """
    attempt.run() within a transaction is undone with it: the row is open and uncounted again.
    """
    flow(work())
    ticket.flow.go()

    with transaction.atomic():
        outcome = attempt.run(message(ticket).pk)
        transaction.set_rollback(True)

    assert outcome is not None
    assert (outcome.ended, message(ticket).is_completed, message(ticket).attempts_started) == ("succeeded", False, 0)
    assert run_available() == 1


def test_lost_claim_keeps_nothing(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    An attempt whose row another one claimed meanwhile writes nothing and says that it lost.
    """

    def effect(instance: Any, **keywords: Any) -> None:
        Product.objects.create(name="effect")
        TransitionMessage.objects.update(claim_token="00000000-0000-0000-0000-000000000001")

    flow(work(effect, callbacks=[diary.hook("after")]))
    ticket.flow.go()
    outcome = attempt.run(message(ticket).pk)

    assert outcome is not None
    assert outcome.ended == "lost"
    assert (Product.objects.count(), stored(ticket), message(ticket).is_completed) == (0, "busy", False)
    assert moves(ticket, "flow") == [("new", "busy")]
    assert diary == []


def test_prepare_runs_in_the_attempt_outside_any_transaction(flow: Flow, ticket: Ticket) -> None:
    """
    prepare of a background declaration is the worker's: not at the call, outside a transaction, before side effects.
    """
    seen: list[Any] = []

    def fetch(instance: Any, context: dict[str, Any], **keywords: Any) -> None:
        row = message(ticket)
        is_leased = row.claim_token is not None
        seen.append(("prepare", instance.state, connection.in_atomic_block, is_leased))
        context["answer"] = {"price": 5}

    def effect(instance: Any, context: dict[str, Any], **keywords: Any) -> None:
        seen.append(("effect", instance.state, connection.in_atomic_block, context["answer"]))

    flow(work(effect, prepare=[fetch]))
    ticket.flow.go()
    before = list(seen)
    run_available()

    assert before == []
    assert seen == [("prepare", "busy", False, True), ("effect", "busy", True, {"price": 5})]
    assert stored(ticket) == "done"


def test_prepared_row_is_kept_from_others(flow: Flow, ticket: Ticket) -> None:
    """
    While prepare runs no lock says so: the lease keeps other claims away for the time limit, or an hour.
    """
    leases: list[Any] = []

    def fetch(instance: Any, **keywords: Any) -> None:
        row = messages(instance)[0]
        leases.append(((row.run_at - row.modified).total_seconds(), run_available()))

    flow(work(prepare=[fetch], timeout=50), work(prepare=[fetch], action="unbounded"))
    other = new_ticket()
    ticket.flow.go()
    run_available()
    other.flow.unbounded()
    run_available()

    assert [(round(seconds), ran) for seconds, ran in leases] == [(50, 0), (3600, 0)]
    assert [stored(ticket), stored(other)] == ["done", "done"]


def test_prepare_that_raises_fails_the_attempt(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    An error in prepare counts like one of a side effect, and prepare runs again with the next attempt.
    """
    flow(
        work(
            diary.hook("effect"),
            prepare=[diary.hook("prepare", Boom())],
            max_errors=2,
            retry=AT_ONCE,
            failure_callbacks=[diary.hook("compensate")],
        )
    )
    ticket.flow.go()
    run_out()

    assert diary.names == ["prepare", "prepare", "compensate"]
    assert (message(ticket).outcome, stored(ticket)) == ("failed", "failed")


def test_prepared_work_is_compensated_when_the_object_moved_meanwhile(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    What prepare did is taken back by failure callbacks when the move then turns out to be unwanted.
    """

    def fetch(instance: Any, **keywords: Any) -> None:
        Ticket.objects.filter(pk=instance.pk).update(state="mended by hand")

    flow(work(diary.hook("effect"), prepare=[fetch], failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()
    run_available()

    assert (message(ticket).outcome, diary.names) == ("superseded", ["compensate"])
    assert stored(ticket) == "mended by hand"


def test_model_that_listens_to_save_is_saved_by_both_moves(flow: Flow) -> None:
    """
    A model with its own save() is saved with the state and auto_now fields for the busy move and the target.
    """
    saved = Saved.objects.create()
    seen: list[Any] = []
    flow(work(lambda instance, **kw: seen.append(instance)), model=Saved)
    stamps = [saved.updated_at]

    saved.flow.go()
    stamps.append(fresh(saved).updated_at)
    run_available()
    stamps.append(fresh(saved).updated_at)

    assert saved.seen[-1] == ["state", "updated_at"]
    assert seen[0].seen == [["state", "updated_at"]]
    assert (stored(saved), moves(saved, "flow")) == ("done", [("new", "busy"), ("busy", "done")])
    assert stamps == sorted(set(stamps))


def test_auto_now_fields_move_with_both_writes(flow: Flow) -> None:
    """
    The busy move and the target touch auto_now fields of a model that does not listen.
    """
    guarded = Guarded.objects.create()
    flow(work(), model=Guarded)
    stamps = [guarded.updated_at]

    guarded.flow.go()
    stamps.append(fresh(guarded).updated_at)
    run_available()
    stamps.append(fresh(guarded).updated_at)

    assert stamps == sorted(set(stamps))


def test_metadata_of_a_hook_reaches_the_history(flow: Flow, ticket: Ticket) -> None:
    """
    context["metadata"] that a side effect fills is kept with the move to the target.
    """

    def effect(instance: Any, context: dict[str, Any], **keywords: Any) -> None:
        context["metadata"] = {"label": "A-17"}

    flow(work(effect))
    ticket.flow.go()
    run_available()

    assert list(ticket.flow.history.values_list("to_state", "metadata")) == [("busy", {}), ("done", {"label": "A-17"})]


def test_instance_of_the_caller_keeps_the_busy_state_until_it_is_loaded_again(flow: Flow, ticket: Ticket) -> None:
    """
    In pull mode the caller's copy says what the database said when the call returned.
    """
    flow(work())
    ticket.flow.go()
    run_available()

    assert (ticket.state, fresh(ticket).state) == ("busy", "done")


def test_sync_mode_leaves_the_callers_instance_up_to_date(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    In sync mode the call returns with the work done, the state in memory included.
    """
    flow(work(diary.hook("effect"), callbacks=[diary.hook("after")]), act(diary.hook("acted"), sources=["done"]))

    with sync_execution():
        answers = [ticket.flow.go(), ticket.flow.act()]

    assert answers == [True, True]
    assert (ticket.state, stored(ticket)) == ("done", "done")
    assert diary.names == ["effect", "after", "acted"]
    assert not TransitionMessage.objects.open().exists()


def test_timeout_is_no_matter_of_an_inline_attempt(flow: Flow, ticket: Ticket) -> None:
    """
    A time limit is enforced by the worker's parent; run inline the work is not cut short.
    """
    flow(work(timeout=0.001))
    ticket.flow.go()
    run_available()

    assert stored(ticket) == "done"


def test_duration_measures_the_attempt_and_not_the_wait(flow: Flow, ticket: Ticket) -> None:
    """
    duration_ms is the length of the attempt that ended the row, however long it waited before.
    """
    flow(work())
    ticket.flow.go()
    TransitionMessage.objects.update(created=message(ticket).created - timedelta(days=1))
    run_available()

    duration = message(ticket).duration_ms
    assert duration is not None
    assert 0 <= duration < 60_000
