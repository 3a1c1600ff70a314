"""
Prove what a failed attempt leaves behind, when the next one begins, and how the last one ends.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from django_logic.background import Backoff, PermanentFailure, Snooze, attempt, run_available, sync_execution
from django_logic.background.models import TransitionMessage
from django_logic.background.settle import LONGEST_TEXT
from django_logic.models import StatusChange
from tests.app.hooked import Boom, Diary, moves, stored
from tests.app.models import Guarded, Product, Ticket
from tests.background.flows import Flow, act, make_due, message, messages, new_ticket, run_out, work
from tests.races.together import Worker

pytestmark = pytest.mark.django_db(transaction=True)


class Refused(Boom):
    """
    Stand for a failure that a retry can't mend.
    """


class Mute(Exception):
    """
    Fail even at saying what went wrong.
    """

    def __str__(self) -> str:
        raise ValueError("no words")


def write_then(error: BaseException) -> Any:
    """
    Make a side effect that writes, then raises.
    """

    def effect(instance: Any, **keywords: Any) -> None:
        Product.objects.create(name="effect")
        raise error

    return effect


def fail_first(times: int, error: BaseException) -> Any:
    """
    Make a side effect that writes, and raises in the first runs.
    """
    left = [error] * times

    def effect(instance: Any, **keywords: Any) -> None:
        Product.objects.create(name="effect")
        if left:
            raise left.pop()

    return effect


def test_failed_attempt_leaves_its_error_and_no_writes(flow: Flow, ticket: Ticket) -> None:
    """
    Everything the attempt wrote is undone; the row counts the error, keeps its words and is open for the next one.
    """
    flow(work(write_then(Boom("no courier"))))
    ticket.flow.go()

    outcome = attempt.run(message(ticket).pk)

    row = message(ticket)
    assert outcome is not None
    assert (outcome.ended, outcome.pause, type(outcome.error)) == ("retry", 120.0, Boom)
    assert (row.is_completed, row.outcome, row.attempts_started, row.errors_count) == (False, "", 1, 1)
    assert (row.last_error_message, row.claim_token, row.ended_in_failure) == ("Boom: no courier", None, False)
    assert (Product.objects.count(), stored(ticket)) == (0, "busy")
    assert moves(ticket, "flow") == [("new", "busy")]


def test_failed_attempt_waits_the_projects_pause(flow: Flow, ticket: Ticket, settings: Any) -> None:
    """
    The next attempt is due TRANSITION_MESSAGE_RETRY_MINUTES after the error, by the database's clock.
    """
    settings.DJANGO_LOGIC = {"TRANSITION_MESSAGE_RETRY_MINUTES": 7}
    flow(work(fail_first(1, Boom())))
    ticket.flow.go()
    run_available()

    row = message(ticket)
    assert row.last_error_dt is not None
    assert abs(row.run_at - row.last_error_dt - timedelta(minutes=7)) < timedelta(milliseconds=5)
    assert run_available() == 0
    make_due()
    assert run_available() == 1
    assert (message(ticket).outcome, message(ticket).errors_count, stored(ticket)) == ("succeeded", 1, "done")
    assert Product.objects.count() == 1


def test_pauses_of_a_backoff_grow_up_to_its_limit(flow: Flow, ticket: Ticket) -> None:
    """
    retry=Backoff(…) makes each pause the factor longer than the one before, up to the limit.
    """
    flow(work(fail_first(9, Boom()), retry=Backoff(first=30, factor=2, limit=100, jitter=0), max_errors=9))
    ticket.flow.go()
    pauses = []
    for _ in range(4):
        make_due()
        outcome = attempt.run(message(ticket).pk)
        assert outcome is not None
        row = message(ticket)
        assert row.last_error_dt is not None
        pauses.append((outcome.pause, round((row.run_at - row.last_error_dt).total_seconds())))

    assert pauses == [(30.0, 30), (60.0, 60), (100.0, 100), (100.0, 100)]


def test_last_attempt_writes_failed_state_and_runs_failure_callbacks(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    After max_errors attempts the object is in failed_state, the row has ended in failure, and callbacks did not run.
    """
    flow(
        work(
            write_then(Boom("no courier")),
            max_errors=3,
            callbacks=[diary.hook("after")],
            failure_callbacks=[diary.hook("compensate"), diary.hook("tell")],
        )
    )
    ticket.flow.go(actor="shop", reason="asked")

    run_out()

    row = message(ticket)
    assert (row.is_completed, row.outcome, row.ended_in_failure) == (True, "failed", True)
    assert (row.attempts_started, row.errors_count, row.last_error_message) == (3, 3, "Boom: no courier")
    assert row.completed_at is not None
    assert (stored(ticket), Product.objects.count()) == ("failed", 0)
    assert moves(ticket, "flow") == [("new", "busy"), ("busy", "failed")]
    failed = StatusChange.objects.get(to_state="failed")
    assert (failed.transition_id, failed.actor_label, failed.reason) == (row.transition_id, "shop", "asked")
    assert diary.names == ["compensate", "tell"]
    assert all(state == "failed" and isinstance(error, Boom) for _name, state, error in diary)
    assert [str(error) for _name, _state, error in diary] == ["no courier", "no courier"]


def test_project_sets_how_many_attempts_may_fail(flow: Flow, ticket: Ticket, settings: Any) -> None:
    """
    Without max_errors= the project's TRANSITION_MESSAGE_MAX_ERRORS counts; 5 is built in.
    """
    other = new_ticket()
    flow(work(write_then(Boom())), work(write_then(Boom()), action="own", max_errors=2))
    ticket.flow.go()
    assert run_out() == 5

    settings.DJANGO_LOGIC = {"TRANSITION_MESSAGE_MAX_ERRORS": 3}
    other.flow.go()
    assert run_out() == 3
    third = new_ticket()
    third.flow.own()
    assert run_out() == 2


def test_limit_that_was_lowered_ends_a_row_that_is_over_it(flow: Flow, ticket: Ticket, settings: Any) -> None:
    """
    A row with more errors than a lowered limit allows takes the failure path at its next claim, its work not run.
    """
    flow(work(fail_first(4, Boom("the first three"))))
    ticket.flow.go()
    for _ in range(3):
        make_due()
        run_available()
    settings.DJANGO_LOGIC = {"TRANSITION_MESSAGE_MAX_ERRORS": 2}
    make_due()

    run_available()

    row = message(ticket)
    assert (row.outcome, row.attempts_started, row.errors_count) == ("failed", 3, 3)
    assert (row.last_error_message, stored(ticket)) == ("Boom: the first three", "failed")


@pytest.mark.parametrize("error", [PermanentFailure("customs"), Refused("customs")])
def test_permanent_failure_takes_the_failure_path_at_once(
    flow: Flow, diary: Diary, ticket: Ticket, error: Exception
) -> None:
    """
    PermanentFailure, or a kind listed in no_retry_on, is not tried again.
    """
    flow(work(write_then(error), no_retry_on=[Refused], failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()

    ran = run_out()

    row = message(ticket)
    assert (ran, row.outcome, row.attempts_started, row.errors_count) == (2, "failed", 1, 1)
    assert (stored(ticket), diary.names) == ("failed", ["compensate"])
    assert type(diary[0][2]) is type(error)


def test_subclass_of_a_kind_in_no_retry_on_counts_too(flow: Flow, ticket: Ticket) -> None:
    """
    no_retry_on means a kind and all that are of it; another kind is tried again.
    """
    other = new_ticket()
    flow(
        work(write_then(Refused()), no_retry_on=(Boom,)),
        work(write_then(Boom()), action="again", no_retry_on=(Refused, KeyError)),
    )
    ticket.flow.go()
    other.flow.again()
    run_available()

    assert [message(ticket).outcome, message(other).outcome] == ["failed", ""]


def test_failure_without_failed_state_leaves_the_busy_state_to_be_recovered(flow: Flow, ticket: Ticket) -> None:
    """
    Without failed_state the object stays busy; the row has ended, so the same action may start from there again.
    """
    flow(work(fail_first(1, PermanentFailure()), failed_state=None))
    ticket.flow.go()
    run_available()
    before = (stored(ticket), message(ticket).outcome)

    again = new = Ticket.objects.get(pk=ticket.pk).flow.go()
    run_available()

    assert before == ("busy", "failed")
    assert (again, new) == (True, True)
    assert [row.outcome for row in messages(ticket)] == ["failed", "succeeded"]
    assert (stored(ticket), moves(ticket, "flow")) == ("done", [("new", "busy"), ("busy", "done")])


def test_failing_action_writes_its_failed_state(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    A BackgroundAction moves the object only when it fails for good, to failed_state; without one it stays.
    """
    other = new_ticket()
    flow(
        act(write_then(PermanentFailure()), failed_state="failed", failure_callbacks=[diary.hook("compensate")]),
        act(write_then(PermanentFailure()), action="harmless"),
    )
    ticket.flow.act()
    other.flow.harmless()
    run_available()

    assert [(stored(found), moves(found, "flow")) for found in (ticket, other)] == [
        ("failed", [("new", "failed")]),
        ("new", []),
    ]
    assert diary.names == ["compensate"]


def test_snooze_costs_no_attempt(flow: Flow, ticket: Ticket) -> None:
    """
    Snooze puts the row back for its seconds, undoes what the attempt wrote, and counts neither attempt nor error.
    """
    flow(work(fail_first(3, Snooze(90)), max_errors=1))
    ticket.flow.go()

    outcomes = []
    for _ in range(3):
        outcome = attempt.run(message(ticket).pk)
        assert outcome is not None
        row = message(ticket)
        outcomes.append((outcome.ended, outcome.pause, row.attempts_started, row.errors_count, row.claim_token))
        assert timedelta(seconds=89) < row.run_at - row.modified < timedelta(seconds=91)
        assert run_available() == 0
        assert Product.objects.count() == 0
    attempt.run(message(ticket).pk)

    assert outcomes == [("snoozed", 90.0, 0, 0, None)] * 3
    assert (message(ticket).outcome, stored(ticket), Product.objects.count()) == ("succeeded", "done", 1)


def test_snooze_of_nothing_is_due_at_once(flow: Flow, ticket: Ticket) -> None:
    """
    Snooze(0) lets others go first and is tried again by the next run.
    """
    flow(work(fail_first(1, Snooze(0))))
    ticket.flow.go()

    assert [run_available(), run_available()] == [1, 1]
    assert stored(ticket) == "done"


def test_lost_attempt_stays_counted_when_the_next_one_snoozes(flow: Flow, ticket: Ticket) -> None:
    """
    Giving a count back takes only the attempt's own.
    """

    class Pulled(BaseException):
        pass

    turns: list[BaseException] = [Snooze(60), Pulled()]

    def effect(instance: Any, **keywords: Any) -> None:
        raise turns.pop()

    flow(work(effect))
    ticket.flow.go()
    with pytest.raises(Pulled):
        run_available()
    make_due()
    run_available()

    assert (message(ticket).attempts_started, message(ticket).errors_count) == (1, 1)


@pytest.mark.parametrize(
    ("error", "stored_text"),
    [
        (Boom("\x00\ud800 end"), "Boom: \\x00\\ud800 end"),
        (Boom("é" * 20_000), "Boom: " + "é" * (LONGEST_TEXT - 7) + "…"),
        (Boom(), "Boom: "),
    ],
)
def test_error_texts_no_database_would_take_are_recorded(
    flow: Flow, ticket: Ticket, error: Exception, stored_text: str
) -> None:
    """
    NUL, lone surrogates and endless texts are made storable, in the row and for failure callbacks.
    """
    told: list[str] = []
    flow(
        work(
            write_then(error),
            max_errors=2,
            failure_callbacks=[lambda instance, exception, **kw: told.append(str(exception))],
        )
    )
    ticket.flow.go()
    run_available()
    first = message(ticket)
    run_out()

    assert (first.errors_count, first.last_error_message) == (1, stored_text)
    assert (message(ticket).outcome, stored(ticket)) == ("failed", "failed")
    assert len(told) == 1


def test_error_without_words_is_recorded(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    An exception whose own text raises still counts, and the row moves on to its end.
    """
    flow(work(write_then(Mute()), max_errors=2, failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()
    run_out()

    row = message(ticket)
    assert (row.outcome, row.errors_count, stored(ticket)) == ("failed", 2, "failed")
    assert "Mute" in row.last_error_message
    assert diary.names == ["compensate"]


def violate(instance: Any, **keywords: Any) -> None:
    """
    Break a constraint of the database.
    """
    Guarded.objects.create(state="forbidden")


def swallow(instance: Any, **keywords: Any) -> None:
    """
    Break a constraint and act as if nothing had happened.
    """
    Product.objects.create(name="effect")
    with suppress(IntegrityError):
        Guarded.objects.create(state="forbidden")


def swallow_apart(instance: Any, **keywords: Any) -> None:
    """
    Break a constraint in a savepoint of its own.
    """
    Product.objects.create(name="effect")
    try:
        with transaction.atomic():
            Guarded.objects.create(state="forbidden")
    except IntegrityError:
        pass


def test_database_error_of_a_side_effect_counts_like_any_other(flow: Flow, ticket: Ticket) -> None:
    """
    A broken constraint spoils the attempt's transaction and not the record of it; the row reaches its end.
    """
    flow(work(violate, max_errors=2))
    ticket.flow.go()
    run_available()
    first = message(ticket)
    run_out()

    assert (first.errors_count, first.is_completed) == (1, False)
    assert "IntegrityError" in first.last_error_message
    assert (message(ticket).outcome, stored(ticket)) == ("failed", "failed")


@pytest.mark.parametrize("is_action", [True, False])
def test_swallowed_database_error_fails_the_attempt(flow: Flow, ticket: Ticket, is_action: bool) -> None:
    """
    A hook that swallows a database error has lost its writes already, so the work does not pass for done.
    """
    flow(act(swallow, action="go") if is_action else work(swallow))
    ticket.flow.go()
    run_available()

    row = message(ticket)
    assert (row.is_completed, row.errors_count, Product.objects.count()) == (False, 1, 0)
    assert "swallowed a database error" in row.last_error_message


def test_database_error_in_its_own_savepoint_may_be_swallowed(flow: Flow, ticket: Ticket) -> None:
    """
    With an atomic() of its own around it, a hook may go on after a database error.
    """
    flow(work(swallow_apart))
    ticket.flow.go()
    run_available()

    assert (message(ticket).outcome, Product.objects.count(), stored(ticket)) == ("succeeded", 1, "done")


def test_target_that_the_database_refuses_fails_the_attempt(flow: Flow, diary: Diary) -> None:
    """
    A constraint that rejects the target is a failure like any other: counted, undone, and in the end terminal.
    """
    guarded = Guarded.objects.create()
    flow(
        work(
            lambda instance, **kw: Product.objects.create(name="effect"),
            target="forbidden",
            max_errors=2,
            failure_callbacks=[diary.hook("compensate")],
        ),
        model=Guarded,
    )
    guarded.flow.go()
    run_available()
    first = message(guarded)
    run_out()

    assert (first.errors_count, first.is_completed) == (1, False)
    assert (message(guarded).outcome, stored(guarded), Product.objects.count()) == ("failed", "failed", 0)
    assert moves(guarded, "flow") == [("new", "busy"), ("busy", "failed")]
    assert diary.names == ["compensate"]


def test_refused_failed_state_is_noted_and_the_row_ends_all_the_same(flow: Flow, diary: Diary) -> None:
    """
    Where the database refuses failed_state too, the row ends, says so, and failure callbacks run all the same.
    """
    guarded = Guarded.objects.create()
    flow(
        work(
            write_then(PermanentFailure("customs")),
            failed_state="forbidden failure",
            failure_callbacks=[diary.hook("compensate")],
        ),
        model=Guarded,
    )
    guarded.flow.go()

    ran = run_out()

    row = message(guarded)
    assert (ran, row.outcome, row.is_completed, row.errors_count) == (2, "failed", True, 1)
    assert row.last_error_message == "PermanentFailure: customs"
    assert "app_guarded_state" in row.failure_side_effect_error
    assert (stored(guarded), moves(guarded, "flow")) == ("busy", [("new", "busy")])
    assert [(name, state) for name, state, _error in diary] == [("compensate", "busy")]


@pytest.mark.usefixtures("only_postgres")
def test_failed_state_is_written_later_when_the_database_gives_way(flow: Flow, ticket: Ticket) -> None:
    """
    A lock time-out while failed_state is written refuses nothing: the row stays open and ends at a later claim.
    """

    def fail_behind_a_lock(instance: Any, **keywords: Any) -> None:
        raise PermanentFailure

    flow(work(fail_behind_a_lock))
    ticket.flow.go()

    def run_impatiently() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '100ms'")
        attempt.run(message(ticket).pk)

    with transaction.atomic():
        Ticket.objects.filter(pk=ticket.pk).update(note="held")
        ended = Worker(run_impatiently).join()
    held = message(ticket)
    run_out()

    assert ended.error is None
    assert held.is_completed is False
    assert (message(ticket).outcome, stored(ticket)) == ("failed", "failed")


def test_object_moved_before_the_last_attempt_failed_is_left_alone(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    A manual fix wins over the failure path too: superseded, no failed_state, no failure callbacks.
    """
    if not connection.features.has_select_for_update:
        pytest.skip("this database has one writer at a time")

    def effect(instance: Any, **keywords: Any) -> None:
        Worker(lambda: Ticket.objects.filter(pk=instance.pk).update(state="mended by hand")).result()
        raise PermanentFailure

    flow(work(effect, failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()
    run_out()

    assert (message(ticket).outcome, stored(ticket), diary) == ("superseded", "mended by hand", [])


def test_error_reaches_the_caller_in_sync_mode_once_it_is_recorded(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    In sync mode the call raises the side effect's own exception; the row has it too, and the object stays busy.
    """
    error = Boom("no courier")
    flow(work(write_then(error), failure_callbacks=[diary.hook("compensate")]))

    with sync_execution(), pytest.raises(Boom) as raised:
        ticket.flow.go()

    row = message(ticket)
    assert raised.value is error
    assert (row.is_completed, row.errors_count, row.last_error_message) == (False, 1, "Boom: no courier")
    assert (ticket.state, stored(ticket), Product.objects.count(), diary) == ("busy", "busy", 0, [])


def test_terminal_error_in_sync_mode_leaves_failed_state_in_memory(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    In sync mode a failure for good writes failed_state, runs failure callbacks, and then raises.
    """
    flow(work(write_then(PermanentFailure("customs")), failure_callbacks=[diary.hook("compensate")]))

    with sync_execution(), pytest.raises(PermanentFailure, match="customs"):
        ticket.flow.go()

    assert (ticket.state, stored(ticket), message(ticket).outcome) == ("failed", "failed", "failed")
    assert diary.names == ["compensate"]


def test_snooze_in_sync_mode_returns_with_the_row_open(flow: Flow, ticket: Ticket) -> None:
    """
    A snoozed attempt is no error: the call returns True and the row waits.
    """
    flow(work(fail_first(1, Snooze(5))))

    with sync_execution():
        answer = ticket.flow.go()

    assert (answer, message(ticket).is_completed, ticket.state) == (True, False, "busy")


def test_failing_attempt_is_told_once_in_the_log(flow: Flow, ticket: Ticket, caplog: pytest.LogCaptureFixture) -> None:
    """
    A failure that will be tried again is one WARNING with its traceback; the last one is one ERROR.
    """
    flow(work(write_then(Boom("no courier")), max_errors=2))
    ticket.flow.go()
    caplog.set_level(logging.WARNING, "django-logic.transition")

    run_available()
    first = [(record.levelname, record.exc_info is not None) for record in caplog.records]
    caplog.clear()
    run_out()

    assert first == [("WARNING", True)]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "no courier" in caplog.text


def test_retry_writes_once(flow: Flow, ticket: Ticket) -> None:
    """
    However many attempts it took, the effect is committed once and the history has one move to the target.
    """
    flow(work(fail_first(3, Boom())))
    ticket.flow.go()
    run_out()

    assert (message(ticket).attempts_started, Product.objects.count()) == (4, 1)
    assert moves(ticket, "flow") == [("new", "busy"), ("busy", "done")]
    assert TransitionMessage.objects.open().count() == 0
