"""
Prove what follows a transition: callbacks, failure callbacks and next transitions as rows of their own, and without.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from django_logic import Transition
from django_logic.background import Backoff, PermanentFailure, Snooze, attempt, run_available, sync_execution
from django_logic.background.exceptions import AttemptFailed
from django_logic.background.models import NEVER, Kind, TransitionMessage
from django_logic.clock import FromNow
from tests.app.hooked import Boom, Diary, fresh, moves, stored
from tests.app.models import Guarded, Parcel, Product, Ticket
from tests.background.flows import AT_ONCE, Flow, act, make_due, message, messages, new_ticket, run_out, work

pytestmark = pytest.mark.django_db(transaction=True)


def kinds_and_names(instance: Any) -> list[tuple[str, str]]:
    """
    List what an object's open rows ask for, in their order.
    """
    return [(row.kind, row.hook_name) for row in messages(instance) if not row.is_completed]


def hop(action: str, source: str, target: str, **options: Any) -> Any:
    """
    Declare background work from one state to the next.
    """
    return work(action=action, sources=[source], target=target, in_progress_state=f"to {target}", **options)


class Local(Exception):
    """
    Take its arguments in a way of its own.
    """

    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(f"{code}: {hint}")


def test_callbacks_and_the_next_transition_are_rows_of_the_attempts_commit(flow: Flow, ticket: Ticket) -> None:
    """
    The commit that moves the object leaves one row for each callback, in order, and one for the next transition.
    """

    def first(instance: Any, **keywords: Any) -> None:
        pass

    def second(instance: Any, **keywords: Any) -> None:
        pass

    flow(
        work(callbacks=[first, second, first], next_transition="on", queue="slow", priority=4, max_errors=6, timeout=9),
        hop("on", "done", "over"),
    )
    ticket.flow.go(actor="shop", reason="asked", lines=[1])

    attempt.run(message(ticket).pk)

    origin, *following = messages(ticket)
    assert [(row.kind, row.hook_name) for row in following] == [
        ("callback", "first"),
        ("callback", "second"),
        ("callback", "first#2"),
        ("next", "on"),
    ]
    for row in following:
        assert (row.queue_name, row.priority, row.max_errors, row.timeout_seconds) == ("slow", 4, 6, 9)
        assert (row.transition_id, row.root_id, row.parent_id) == (origin.transition_id, origin.root_id, None)
        assert (row.actor_label, row.reason, row.kwargs) == ("shop", "asked", {"lines": [1]})
        assert (row.attempts_started, row.transition_name, row.is_completed) == (0, "go", False)
        assert "go" in str(row)
    assert stored(ticket) == "done"


def test_failed_attempt_leaves_no_row_that_follows(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    Rows of callbacks share the fate of the commit they belong to.
    """
    flow(work(diary.hook("effect", Boom()), callbacks=[diary.hook("after")], failure_callbacks=[diary.hook("no")]))
    ticket.flow.go()
    run_available()

    assert [row.kind for row in messages(ticket)] == ["transition"]


def test_rows_that_follow_run_in_the_order_of_the_declaration(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    Callbacks run one after the other, then the next transition; several objects do not mix.
    """
    flow(
        work(callbacks=[diary.hook(name) for name in "abc"], next_transition="on"),
        work(diary.hook("on"), action="on", sources=["done"], target="over"),
    )
    ticket.flow.go()
    run_out()

    assert diary.names == ["a", "b", "c", "on"]
    assert stored(ticket) == "over"


def test_failing_callback_holds_back_what_is_behind_it(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    A callback that fails is retried after its pause, and what follows it waits: order is kept.
    """
    failures: list[BaseException] = [Boom("mail server"), Boom("mail server")]

    def mail(instance: Any, **keywords: Any) -> None:
        diary.append(("mail", instance.state))
        if failures:
            raise failures.pop()

    flow(
        work(
            callbacks=[diary.hook("first"), mail, diary.hook("last")],
            retry=Backoff(first=100, factor=1, limit=100, jitter=0),
            next_transition="on",
        ),
        work(diary.hook("on"), action="on", sources=["done"], target="over"),
    )
    ticket.flow.go()

    counts = [run_available(), run_available()]
    _first, head, last, following = messages(ticket, "callback", "next")
    make_due()
    counts += [run_available()]
    make_due()
    counts += [run_available(), run_available()]

    assert counts == [3, 0, 1, 4, 0]
    assert diary.names == ["first", "mail", "mail", "mail", "last", "on"]
    assert (head.errors_count, head.attempts_started, head.last_error_message) == (1, 1, "Boom: mail server")
    assert head.last_error_dt is not None
    assert timedelta(seconds=99) < head.run_at - head.last_error_dt < timedelta(seconds=101)
    assert min(last.run_at, following.run_at) >= head.run_at - timedelta(milliseconds=5)


def test_head_that_waits_holds_others_back_even_when_they_are_due(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    Not the time but the order decides: rows behind an open one are not claimed, however due they are.
    """
    flow(work(callbacks=[diary.hook("first"), diary.hook("last")]))
    ticket.flow.go()
    attempt.run(message(ticket).pk)
    first, _last = messages(ticket, "callback")
    TransitionMessage.objects.filter(pk=first.pk).update(run_at=FromNow(3600))

    assert (run_available(), diary) == (0, [])


def test_order_is_kept_across_transitions_of_one_object(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    Callbacks of a later transition wait for those of an earlier one; other objects and processes do not.
    """
    failures: list[BaseException] = [Boom()]

    def mail(instance: Any, **keywords: Any) -> None:
        diary.append(("mail", instance.pk))
        if failures:
            raise failures.pop()

    flow(
        work(callbacks=[mail]),
        work(action="on", sources=["done"], target="over", callbacks=[diary.hook("later")]),
    )
    other = new_ticket(state="done")
    ticket.flow.go()
    run_available()
    fresh(ticket).flow.on()
    other.flow.on()
    run_available()
    before = list(diary.names)
    run_out()

    assert before == ["mail", "later"]
    assert diary.names == ["mail", "later", "mail", "later"]


@pytest.mark.parametrize("error", [Boom("mail server"), PermanentFailure("no such address")])
def test_spent_callback_stays_listed_and_blocks_nobody(
    flow: Flow, diary: Diary, ticket: Ticket, error: Exception
) -> None:
    """
    A callback that failed for good stays open for an operator; what is behind it runs, and the object is free.
    """
    flow(
        work(
            callbacks=[diary.hook("mail", error), diary.hook("last")],
            next_transition="on",
            max_errors=2,
            retry=AT_ONCE,
        ),
        work(diary.hook("on"), action="on", sources=["done"], target="over"),
        Transition("file", ["over"], "filed"),
    )
    ticket.flow.go()

    run_out()

    tries = 2 if isinstance(error, Boom) else 1
    spent = messages(ticket, "callback")[0]
    assert diary.names == ["mail"] * tries + ["last", "on"]
    assert (spent.is_completed, spent.run_at, spent.errors_count) == (False, NEVER, tries)
    assert str(error) in spent.last_error_message
    assert fresh(ticket).flow.file() is True
    assert run_available() == 0


def test_spent_callback_runs_again_when_an_operator_asks(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    With attempts given back a spent row runs like any other.
    """
    failures: list[BaseException] = [Boom()]

    def mail(instance: Any, **keywords: Any) -> None:
        diary.append(("mail", instance.state))
        if failures:
            raise failures.pop()

    flow(work(callbacks=[mail], max_errors=1))
    ticket.flow.go()
    run_out()
    TransitionMessage.objects.open().update(errors_count=0, attempts_started=0)
    (spent,) = messages(ticket, "callback")

    outcome = attempt.run(spent.pk)

    assert outcome is not None
    assert (outcome.ended, diary.names) == ("succeeded", ["mail", "mail"])


def test_callback_is_all_or_nothing_and_retried_by_itself(flow: Flow, ticket: Ticket) -> None:
    """
    What a failing callback wrote is undone; a retry runs that callback alone and commits its effect once.
    """
    failures: list[BaseException] = [Boom()]

    def effect(instance: Any, **keywords: Any) -> None:
        Product.objects.create(name="effect")

    def mail(instance: Any, **keywords: Any) -> None:
        Product.objects.create(name="mail")
        if failures:
            raise failures.pop()

    flow(work(effect, callbacks=[mail]))
    ticket.flow.go()
    run_available()
    before = list(Product.objects.values_list("name", flat=True))
    run_out()

    assert before == ["effect"]
    assert list(Product.objects.order_by("pk").values_list("name", flat=True)) == ["effect", "mail"]
    assert moves(ticket, "flow") == [("new", "busy"), ("busy", "done")]


def test_database_error_of_a_callback_counts_on_its_own_row(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    A callback that breaks a constraint, or swallows that it did, fails its row; the transition stays done.
    """

    def violate(instance: Any, **keywords: Any) -> None:
        Guarded.objects.create(state="forbidden")

    def swallow(instance: Any, **keywords: Any) -> None:
        with suppress(IntegrityError):
            violate(instance)

    flow(work(callbacks=[violate, swallow, diary.hook("last")], max_errors=1))
    ticket.flow.go()
    run_out()

    assert [(row.is_completed, row.errors_count) for row in messages(ticket, "callback")] == [
        (False, 1),
        (False, 1),
        (True, 0),
    ]
    assert (message(ticket).outcome, diary.names, stored(ticket)) == ("succeeded", ["last"], "done")


def test_callback_may_snooze(flow: Flow, ticket: Ticket) -> None:
    """
    Snooze in a callback puts its row back without counting; those behind it wait.
    """
    turns: list[BaseException] = [Snooze(60)]
    ran: list[str] = []

    def mail(instance: Any, **keywords: Any) -> None:
        if turns:
            raise turns.pop()
        ran.append("mail")

    flow(work(callbacks=[mail, lambda instance, **kw: ran.append("last")], max_errors=1))
    ticket.flow.go()
    run_available()
    waiting = messages(ticket, "callback")[0]
    before = list(ran)
    run_out()

    assert (before, ran) == ([], ["mail", "last"])
    assert (waiting.attempts_started, waiting.errors_count) == (0, 0)


def test_callback_sees_the_object_as_it_is_then(flow: Flow, ticket: Ticket) -> None:
    """
    A callback loads the object afresh; one that has moved on meanwhile is still told.
    """
    seen: list[Any] = []
    flow(
        work(callbacks=[lambda instance, **kw: seen.append((instance.state, instance.note))]),
        Transition("file", ["done"], "filed"),
    )
    ticket.flow.go()
    attempt.run(message(ticket).pk)
    Ticket.objects.update(note="edited")
    fresh(ticket).flow.file()

    run_available()

    assert seen == [("filed", "edited")]


def test_callback_of_a_deleted_object_ends_without_running(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    What was to be told of an object that is gone ends as unrestorable.
    """
    flow(work(callbacks=[diary.hook("after")], next_transition="on"), hop("on", "done", "over"))
    ticket.flow.go()
    attempt.run(message(ticket).pk)
    Ticket.objects.all().delete()

    run_out()

    ended = TransitionMessage.objects.exclude(kind=Kind.TRANSITION).values_list("outcome", flat=True)
    assert (list(ended), diary) == (["unrestorable"] * 2, [])


def test_callback_that_this_code_does_not_have_is_put_back(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    A hook of newer code is deferred, uncounted, and what is behind it waits.
    """
    flow(work(callbacks=[diary.hook("after"), diary.hook("last")]))
    ticket.flow.go()
    attempt.run(message(ticket).pk)
    TransitionMessage.objects.filter(hook_name="after").update(hook_name="of_newer_code")

    run_available()

    row, behind = messages(ticket, "callback")
    assert (row.is_completed, row.attempts_started, row.errors_count) == (False, 0, 0)
    assert "of_newer_code" in row.last_error_message
    assert (behind.attempts_started, diary) == (0, [])


def test_hooks_without_a_name_of_their_own_are_told_apart(flow: Flow, ticket: Ticket) -> None:
    """
    Lambdas, partials and callable objects each get a row, and each runs once, in order.
    """
    ran: list[str] = []

    class Caller:
        def __call__(self, instance: Any, **keywords: Any) -> None:
            ran.append("object")

    def note(instance: Any, word: str, **keywords: Any) -> None:
        ran.append(word)

    flow(
        work(
            callbacks=[
                lambda instance, **kw: ran.append("one"),
                lambda instance, **kw: ran.append("two"),
                partial(note, word="three"),
                partial(note, word="four"),
                Caller(),
            ]
        )
    )
    ticket.flow.go()
    run_available()

    assert ran == ["one", "two", "three", "four", "object"]


def test_context_reaches_the_callbacks(flow: Flow, ticket: Ticket) -> None:
    """
    What side effects put into the context arrives in every callback with its types; what can't be stored is logged.
    """
    seen: list[Any] = []

    def effect(instance: Any, context: dict[str, Any], **keywords: Any) -> None:
        context.update(label=("A", 17), secret=object(), metadata={"printed": True})

    def look(instance: Any, context: dict[str, Any], **keywords: Any) -> None:
        seen.append(dict(context))

    flow(work(effect, callbacks=[look, look]))
    ticket.flow.go(lines=[1])
    run_available()

    assert seen == [{"label": ("A", 17), "metadata": {"printed": True}}] * 2


def test_context_that_can_not_be_stored_is_named_in_the_log(
    flow: Flow, ticket: Ticket, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A part of the context that does not reach the callbacks is one WARNING with its name.
    """

    def effect(instance: Any, context: dict[str, Any], **keywords: Any) -> None:
        context["handle"] = object()

    flow(work(effect, callbacks=[lambda instance, **kw: None]))
    ticket.flow.go()
    caplog.set_level(logging.WARNING, "django-logic.transition")
    run_available()

    (record,) = caplog.records
    assert (record.levelname, "handle" in record.getMessage()) == ("WARNING", True)
    assert message(ticket).outcome == "succeeded"


@pytest.mark.parametrize("fails", [False, True])
def test_context_that_is_too_large_as_a_whole_fails_nothing(flow: Flow, ticket: Ticket, fails: bool) -> None:
    """
    Parts that can be stored one by one but not together are left out as far as needed; the work ends as it would.
    """
    seen: list[Any] = []

    def effect(instance: Any, context: dict[str, Any], **keywords: Any) -> None:
        context.update({"small": 1, "first": "x" * 600_000, "second": "y" * 600_000})
        if fails:
            raise PermanentFailure

    def look(instance: Any, context: dict[str, Any], **keywords: Any) -> None:
        seen.append(context["small"])

    flow(work(effect, callbacks=[look], failure_callbacks=[look]))
    ticket.flow.go()
    run_out()

    assert (message(ticket).outcome, stored(ticket)) == (("failed", "failed") if fails else ("succeeded", "done"))
    assert seen == [1]


@pytest.mark.parametrize("key", [5, None, "\x00", "\ud800", ("a", 1)])
def test_context_with_odd_keys_fails_nothing(flow: Flow, ticket: Ticket, key: Any) -> None:
    """
    Whatever a hook uses as a key of the context, the work is done and the other parts arrive.
    """
    seen: list[Any] = []

    def effect(instance: Any, context: dict[Any, Any], **keywords: Any) -> None:
        context.update({key: 1, "plain": 2})

    flow(work(effect, callbacks=[lambda instance, context, **kw: seen.append(context["plain"])]))
    ticket.flow.go()
    run_out()

    assert (message(ticket).outcome, seen) == ("succeeded", [2])


def test_context_of_a_failure_reaches_failure_callbacks(flow: Flow, ticket: Ticket) -> None:
    """
    Failure callbacks get what the last attempt had put into the context before it failed.
    """
    seen: list[Any] = []

    def effect(instance: Any, context: dict[str, Any], **keywords: Any) -> None:
        context["booking"] = 5
        raise PermanentFailure

    flow(work(effect, failure_callbacks=[lambda instance, context, **kw: seen.append(dict(context))]))
    ticket.flow.go()
    run_out()

    assert seen == [{"booking": 5}]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (Boom("text", 5, (1, 2)), Boom, "('text', 5, (1, 2))"),
        (KeyError("missing"), KeyError, "'missing'"),
        (PermanentFailure("customs"), PermanentFailure, "customs"),
        (Boom(object), AttemptFailed, "Boom: <class 'object'>"),
        (Local(5, hint="mend it"), AttemptFailed, "Local: 5: mend it"),
        (type("Nowhere", (Exception,), {})("lost"), AttemptFailed, "Nowhere: lost"),
    ],
)
def test_failure_callback_gets_the_exception_as_it_was(
    flow: Flow, ticket: Ticket, error: Exception, kind: type[Exception], words: str
) -> None:
    """
    The exception comes back with its class and arguments; where that can't be, a stand-in tells class and words.
    """
    seen: list[BaseException] = []

    def fail(instance: Any, **keywords: Any) -> None:
        raise error

    flow(work(fail, max_errors=1, failure_callbacks=[lambda instance, exception, **kw: seen.append(exception)]))
    ticket.flow.go()
    run_out()

    assert [(type(found), str(found)) for found in seen] == [(kind, words)]


def test_stored_class_that_is_no_exception_is_not_called(flow: Flow, ticket: Ticket) -> None:
    """
    A path in the row that names something else than an exception is never called.
    """
    seen: list[BaseException] = []
    flow(
        work(
            lambda instance, **kw: 1 / 0,
            max_errors=1,
            failure_callbacks=[lambda instance, exception, **kw: seen.append(exception)],
        )
    )
    ticket.flow.go()
    attempt.run(message(ticket).pk)
    (row,) = messages(ticket, "failure_callback")
    text = json.dumps(row.kwargs).replace("builtins.ZeroDivisionError", f"{__name__}.{make_product.__name__}")
    row.kwargs = json.loads(text)
    row.save(update_fields=["kwargs"])

    run_out()

    assert Product.objects.count() == 0
    assert [type(found) for found in seen] == [AttemptFailed]


def make_product(name: str) -> Product:
    """
    Leave a trace of a call that must not happen.
    """
    return Product.objects.create(name=name)


def test_callback_may_start_the_next_background_transition(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    The gate looks at transitions only: a callback's own row does not keep it from starting follow-up work.
    """

    def start(instance: Any, **keywords: Any) -> None:
        diary.append(("start", instance.state))
        assert instance.flow.on() is True

    flow(
        work(callbacks=[start, diary.hook("last")]),
        work(diary.hook("on"), action="on", sources=["done"], target="over", callbacks=[diary.hook("after")]),
    )
    ticket.flow.go()
    run_out()

    assert (stored(ticket), diary.names) == ("over", ["start", "last", "on", "after"])
    first, second = messages(ticket, "transition")
    assert (second.parent_id, second.root_id) == (first.transition_id, first.root_id)


def test_failing_callback_takes_back_the_work_it_started(flow: Flow, ticket: Ticket) -> None:
    """
    A callback that starts follow-up work and then fails has started nothing; its retry starts it once.
    """
    failures: list[BaseException] = [Boom()]

    def start(instance: Any, **keywords: Any) -> None:
        instance.flow.on()
        if failures:
            raise failures.pop()

    flow(work(callbacks=[start]), work(action="on", sources=["done"], target="over"))
    ticket.flow.go()
    run_available()
    before = (stored(ticket), len(messages(ticket, "transition")))
    run_out()

    assert before == ("done", 1)
    assert (stored(ticket), len(messages(ticket, "transition"))) == ("over", 2)


def test_chain_goes_from_background_to_sync_and_back(flow: Flow, diary: Diary, ticket: Ticket, clerk: Any) -> None:
    """
    next_transition leads from background work through a synchronous move to background work, keywords and people kept.
    """
    seen: list[Any] = []

    def note(instance: Any, **keywords: Any) -> None:
        seen.append((instance.state, keywords["user"], keywords["reason"], keywords["lines"]))

    flow(
        work(note, next_transition="file"),
        Transition("file", ["done"], "filed", side_effects=[note], callbacks=[note], next_transition="send"),
        hop("send", "filed", "sent", next_transition="act"),
        act(note, sources=["sent"]),
    )
    ticket.flow.go(user=clerk, reason="asked", lines=(1,), delay=0)
    run_out()

    assert [state for state, *_rest in seen] == ["busy", "done", "filed", "sent"]
    assert all(rest == [clerk, "asked", (1,)] for _state, *rest in seen)
    assert moves(ticket, "flow") == [
        ("new", "busy"),
        ("busy", "done"),
        ("done", "filed"),
        ("filed", "to sent"),
        ("to sent", "sent"),
    ]
    ids = list(ticket.flow.history.values_list("transition_id", "root_id", "parent_id"))
    root = ids[0][0]
    assert {entry[1] for entry in ids} == {root}
    assert [entry[2] for entry in ids] == [None, None, root, ids[2][0], ids[2][0]]
    assert not TransitionMessage.objects.open().exists()


def test_next_transition_that_is_refused_is_noted_and_ends(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    A follow-up that is not possible now is skipped: its row ends with a note, and is not tried again.
    """
    flow(
        work(next_transition="on"),
        work(
            diary.hook("on"), action="on", sources=["done"], target="over", conditions=[diary.hook("no", answer=False)]
        ),
    )
    ticket.flow.go()
    run_out()

    row = message(ticket, "next")
    assert (row.outcome, row.attempts_started, row.errors_count) == ("succeeded", 1, 0)
    assert "no" in row.last_error_message
    assert (stored(ticket), diary.names) == ("done", ["no"])


def test_next_transition_waits_while_the_object_is_busy(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    Work that somebody else started meanwhile makes the follow-up wait instead of skipping it, and costs no attempt.
    """
    flow(
        work(callbacks=[diary.hook("after")], next_transition="on"),
        act(diary.hook("act"), sources=["done"]),
        work(diary.hook("on"), action="on", sources=["done"], target="over"),
    )
    ticket.flow.go()
    attempt.run(message(ticket).pk)
    fresh(ticket).flow.act(delay=3600)
    run_available()
    before = message(ticket, "next")
    run_out()

    assert (before.is_completed, before.attempts_started, before.errors_count) == (False, 0, 0)
    assert (diary.names, stored(ticket)) == (["after", "act", "on"], "over")


def test_next_transition_whose_side_effect_fails_is_tried_again(flow: Flow, ticket: Ticket) -> None:
    """
    A synchronous follow-up that fails without a failed_state is undone and tried again with its row.
    """
    failures: list[BaseException] = [Boom()]

    def effect(instance: Any, **keywords: Any) -> None:
        Product.objects.create(name="effect")
        if failures:
            raise failures.pop()

    flow(work(next_transition="file"), Transition("file", ["done"], "filed", side_effects=[effect]))
    ticket.flow.go()
    run_available()
    before = (stored(ticket), message(ticket, "next").errors_count, Product.objects.count())
    run_out()

    assert before == ("done", 1, 0)
    assert (stored(ticket), Product.objects.count()) == ("filed", 1)


def test_next_transition_that_ends_in_its_failed_state_is_not_tried_again(
    flow: Flow, diary: Diary, ticket: Ticket
) -> None:
    """
    A synchronous follow-up that fails into its failed_state has ended: the row says so, failure callbacks ran.
    """
    flow(
        work(next_transition="file"),
        Transition(
            "file",
            ["done"],
            "filed",
            side_effects=[diary.hook("file", Boom("full"))],
            failed_state="unfiled",
            failure_callbacks=[diary.hook("compensate")],
        ),
    )
    ticket.flow.go()
    run_out()

    row = message(ticket, "next")
    assert (stored(ticket), row.outcome, row.attempts_started) == ("unfiled", "succeeded", 1)
    assert "file" in row.last_error_message
    assert diary.names == ["file", "compensate"]
    assert moves(ticket, "flow")[-1] == ("done", "unfiled")


def test_circle_of_next_transitions_is_held_to_its_queue(flow: Flow, ticket: Ticket) -> None:
    """
    A circle of background follow-ups goes round one row at a time, so limit= bounds it.
    """
    flow(
        work(sources=["new", "there"], next_transition="back"),
        work(action="back", sources=["done"], target="there", in_progress_state="returning", next_transition="go"),
    )
    ticket.flow.go()

    ran = run_available(limit=11)

    assert ran == 11
    assert len(messages(ticket, "transition")) == 6
    assert TransitionMessage.objects.open().count() == 1


def test_durable_rows_of_two_processes_do_not_wait_for_each_other(flow: Flow, diary: Diary) -> None:
    """
    Order is kept for each object and process: a failing callback of one does not hold up the other.
    """

    def mail(instance: Any, **keywords: Any) -> None:
        raise Boom

    parcel = Parcel.objects.create()
    flow(work(callbacks=[mail]), model=Parcel, field="parcel_status")
    told: list[int] = []
    flow(
        work(callbacks=[lambda instance, **kw: told.append(instance.pk)]),
        model=Parcel,
        field="payment_status",
        process_name="cash",
    )
    parcel.flow.go()
    parcel.cash.go()
    run_available()

    assert told == [parcel.pk]


def test_failure_callbacks_run_in_order_and_are_retried(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    Failure callbacks are rows as well: written with failed_state, in order, each retried by itself.
    """
    failures: list[BaseException] = [Boom("refund service")]

    def refund(instance: Any, exception: BaseException, **keywords: Any) -> None:
        diary.append(("refund", str(exception)))
        if failures:
            raise failures.pop()

    flow(
        work(
            diary.hook("effect", PermanentFailure("customs")),
            failure_callbacks=[refund, diary.hook("tell")],
            callbacks=[diary.hook("after")],
            next_transition="on",
        ),
        hop("on", "done", "over"),
    )
    ticket.flow.go()
    attempt.run(message(ticket).pk)
    written = kinds_and_names(ticket)
    run_out()

    assert written == [("failure_callback", "refund"), ("failure_callback", "tell")]
    assert diary.names == ["effect", "refund", "refund", "tell"]
    assert [entry[1] for entry in diary if entry[0] == "refund"] == ["customs", "customs"]
    assert not TransitionMessage.objects.open().exists()


def test_process_without_durable_callbacks_writes_no_extra_rows(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    durable_callbacks = False: callbacks and the next transition run after the commit, best effort, as in a sync call.
    """
    flow(
        work(
            diary.hook("effect"),
            callbacks=[diary.hook("fails", Boom()), diary.hook("after")],
            next_transition="on",
        ),
        work(diary.hook("on"), action="on", sources=["done"], target="over"),
        durable_callbacks=False,
    )
    ticket.flow.go()

    ran = run_available()

    assert ran == 2
    assert diary == [("effect", "busy"), ("fails", "done"), ("after", "done"), ("on", "busy")]
    assert [(row.kind, row.outcome) for row in messages(ticket)] == [("transition", "succeeded")] * 2
    assert stored(ticket) == "over"


def test_process_without_durable_callbacks_runs_failure_callbacks_at_once(
    flow: Flow, diary: Diary, ticket: Ticket
) -> None:
    """
    durable_callbacks = False: failure callbacks run after failed_state is committed, with the very exception.
    """
    error = PermanentFailure("customs")
    flow(
        work(
            diary.hook("effect", error),
            failure_callbacks=[diary.hook("fails", Boom()), diary.hook("compensate")],
        ),
        durable_callbacks=False,
    )
    ticket.flow.go()

    assert run_available() == 1
    assert diary == [("effect", "busy"), ("fails", "failed", error), ("compensate", "failed", error)]
    assert len(messages(ticket)) == 1


def test_callbacks_that_are_not_durable_wait_for_the_outermost_commit(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    durable_callbacks = False: within a transaction callbacks wait for its commit, and vanish with its rollback.
    """
    other = new_ticket()
    flow(work(callbacks=[diary.hook("after")]), durable_callbacks=False)
    ticket.flow.go()
    other.flow.go()

    with transaction.atomic():
        attempt.run(message(ticket).pk)
        within = list(diary)
    with transaction.atomic():
        attempt.run(message(other).pk)
        transaction.set_rollback(True)

    assert (within, diary.names) == ([], ["after"])


def test_rows_that_follow_run_in_the_call_in_sync_mode(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    In sync mode callbacks and a chain of next transitions are done when the call returns.
    """
    flow(
        work(diary.hook("effect"), callbacks=[diary.hook("after")], next_transition="file"),
        Transition("file", ["done"], "filed", side_effects=[diary.hook("file")], next_transition="send"),
        work(diary.hook("send"), action="send", sources=["filed"], target="sent", callbacks=[diary.hook("told")]),
    )

    with sync_execution():
        ticket.flow.go()

    assert diary.names == ["effect", "after", "file", "send", "told"]
    assert (stored(ticket), fresh(ticket).state) == ("sent", "sent")
    assert not TransitionMessage.objects.open().exists()


def test_instance_in_memory_follows_a_chain_in_sync_mode(flow: Flow, ticket: Ticket) -> None:
    """
    After a sync-mode call the caller's instance says what the database says, however far the chain went.
    """
    flow(work(next_transition="on"), work(action="on", sources=["done"], target="over"))

    with sync_execution():
        ticket.flow.go()

    assert ticket.state == stored(ticket) == "over"


def test_failing_callback_holds_back_what_is_behind_it_in_sync_mode(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    The order of rows is kept in sync mode as well: a failed callback keeps what follows waiting, and raises nothing.
    """
    flow(work(callbacks=[diary.hook("fails", Boom()), diary.hook("after")]))

    with sync_execution():
        answer = ticket.flow.go()

    assert (answer, diary.names) == (True, ["fails"])
    assert [row.is_completed for row in messages(ticket, "callback")] == [False, False]


def test_rows_that_follow_wait_for_the_commit_in_sync_mode(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    Within a transaction the attempt runs in the call and callbacks after the commit; a rollback undoes all of it.
    """
    other = new_ticket()
    flow(work(diary.hook("effect"), callbacks=[diary.hook("after")]))

    with sync_execution():
        with transaction.atomic():
            ticket.flow.go()
            within = (list(diary.names), ticket.state)
        with transaction.atomic():
            other.flow.go()
            transaction.set_rollback(True)

    assert within == (["effect"], "done")
    assert diary.names == ["effect", "after", "effect"]
    assert (messages(other), stored(other)) == ([], "new")


def test_failing_background_follow_up_in_sync_mode_is_recorded(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    In sync mode a chained background transition whose attempt fails keeps its row and its error; the call returns.
    """
    flow(
        work(next_transition="on"),
        work(diary.hook("on", Boom()), action="on", sources=["done"], target="over", in_progress_state=None),
    )

    with sync_execution():
        answer = ticket.flow.go()

    first, second = messages(ticket, "transition")
    assert answer is True
    assert (first.outcome, second.is_completed, second.errors_count) == ("succeeded", False, 1)
    assert diary.names == ["on"]
