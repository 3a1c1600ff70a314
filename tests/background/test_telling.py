"""
Prove what signals, log and audit tell of background work, and when.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.dispatch import Signal

from django_logic import signals
from django_logic.background import PermanentFailure, Snooze, run_available, sync_execution
from django_logic.exceptions import TransitionNotAllowed
from django_logic.models import AuditEntry
from tests.app.hooked import Boom, Diary, stored
from tests.app.models import Ticket
from tests.background.flows import AT_ONCE, Flow, act, message, messages, new_ticket, run_out, work

pytestmark = pytest.mark.django_db(transaction=True)

SIGNALS = {
    "started": signals.transition_started,
    "accepted": signals.transition_accepted,
    "finished": signals.transition_finished,
    "failed": signals.transition_failed,
    "refused": signals.transition_refused,
}


@contextmanager
def heard(*names: str) -> Iterator[list[Any]]:
    """
    Write down each signal with its sender, call and facts.
    """
    found: list[Any] = []
    receivers: list[tuple[Signal, Any]] = []
    for name in names or SIGNALS:

        def receive(sender: Any, call: Any, name: str = name, **facts: Any) -> None:
            facts.pop("signal")
            found.append((name, sender, call, facts))

        SIGNALS[name].connect(receive, weak=False)
        receivers.append((SIGNALS[name], receive))
    try:
        yield found
    finally:
        for signal, receive in receivers:
            signal.disconnect(receive)


def names(found: list[Any]) -> list[str]:
    """
    Return which signals were sent, in order.
    """
    return [entry[0] for entry in found]


def test_call_sends_accepted_and_the_attempt_sends_finished(flow: Flow, ticket: Ticket, clerk: Any) -> None:
    """
    The call sends started, and accepted with the busy move; the attempt sends finished with the move to the target.
    """
    flow(work())
    with heard() as found:
        ticket.flow.go(user=clerk)
        at_the_call = len(found)
        run_available()

    assert (names(found), at_the_call) == (["started", "accepted", "finished"], 2)
    assert {sender for _name, sender, _call, _facts in found} == {Ticket}
    assert {call.transition_id for _name, _sender, call, _facts in found} == {message(ticket).transition_id}
    accepted, finished = found[1][3], found[2][3]
    assert (accepted["move"].expected, accepted["move"].new) == ("new", "busy")
    assert (finished["moved"], finished["move"].expected, finished["move"].new) == (True, "busy", "done")
    assert (found[2][2].user, found[2][2].instance.state) == (clerk, "done")


def test_action_has_no_move_to_tell(flow: Flow, ticket: Ticket) -> None:
    """
    A BackgroundAction is accepted and finished without a move.
    """
    flow(act())
    with heard("accepted", "finished") as found:
        ticket.flow.act()
        run_available()

    assert [(name, facts) for name, _sender, _call, facts in found] == [
        ("accepted", {"move": None}),
        ("finished", {"moved": True, "move": None}),
    ]


def test_failed_is_sent_when_it_is_final(flow: Flow, ticket: Ticket) -> None:
    """
    An attempt that will be repeated sends nothing; the last one sends failed with the exception and the move.
    """
    error = Boom("no courier")

    def effect(instance: Any, **keywords: Any) -> None:
        raise error

    flow(work(effect, max_errors=2, retry=AT_ONCE))
    with heard("finished", "failed") as found:
        ticket.flow.go()
        run_available()
        first = list(found)
        run_available()

    assert first == []
    ((name, _sender, call, facts),) = found
    assert (name, facts["exception"]) == ("failed", error)
    assert (facts["move"].expected, facts["move"].new, call.instance.state) == ("busy", "failed", "failed")


@pytest.mark.parametrize("error", [Snooze(5), None])
def test_snoozed_and_superseded_attempts_send_nothing(flow: Flow, ticket: Ticket, error: Exception | None) -> None:
    """
    Work that was put off or is not wanted any more has neither finished nor failed.
    """

    def effect(instance: Any, **keywords: Any) -> None:
        if error is not None:
            raise error
        Ticket.objects.filter(pk=instance.pk).update(state="elsewhere")

    flow(work(effect))
    with heard("finished", "failed", "refused") as found:
        ticket.flow.go()
        run_available()

    assert found == []


def test_refused_call_sends_refused(flow: Flow, ticket: Ticket) -> None:
    """
    A second call is refused like any other.
    """
    flow(work())
    ticket.flow.go()
    with heard() as found, pytest.raises(TransitionNotAllowed):
        ticket.flow.go()

    assert names(found) == ["started", "refused"]
    assert found[1][3]["exception"].reason == "background_in_flight"


def test_finished_is_sent_after_the_commit_and_before_callbacks(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    A receiver of finished sees the committed state, and callbacks have not run yet.
    """
    states: list[Any] = []

    def receive(sender: Any, **facts: Any) -> None:
        states.append((stored(ticket), message(ticket).is_completed, list(diary.names)))

    flow(work(callbacks=[diary.hook("after")]))
    ticket.flow.go()
    signals.transition_finished.connect(receive, weak=False)
    try:
        run_available()
    finally:
        signals.transition_finished.disconnect(receive)

    assert states == [("done", True, [])]
    assert diary.names == ["after"]


def test_receiver_that_raises_changes_nothing(flow: Flow, ticket: Ticket, caplog: pytest.LogCaptureFixture) -> None:
    """
    What a receiver raises is logged; the work stays done.
    """

    def receive(sender: Any, **facts: Any) -> None:
        raise Boom

    flow(work())
    signals.transition_finished.connect(receive, weak=False)
    signals.transition_accepted.connect(receive, weak=False)
    try:
        ticket.flow.go()
        run_available()
    finally:
        signals.transition_finished.disconnect(receive)
        signals.transition_accepted.disconnect(receive)

    assert (message(ticket).outcome, stored(ticket)) == ("succeeded", "done")


def test_sync_mode_sends_the_same_signals(flow: Flow, ticket: Ticket) -> None:
    """
    Sync mode tells the same story in one call.
    """
    flow(work())
    with heard() as found, sync_execution():
        ticket.flow.go()

    assert names(found) == ["started", "accepted", "finished"]


def test_log_tells_call_and_attempt_with_their_ids_and_no_keywords(
    flow: Flow, ticket: Ticket, caplog: pytest.LogCaptureFixture
) -> None:
    """
    One INFO line for the call and one for the attempt, with the ids in extra; keywords never appear.
    """
    process = flow(work(), act(sources=["done"]))
    caplog.set_level(logging.INFO, "django-logic.transition")

    ticket.flow.go(password="hunter2")
    run_available()
    Ticket.objects.get(pk=ticket.pk).flow.act()
    run_available()

    subject = f"Ticket {ticket.pk}"
    assert [record.getMessage() for record in caplog.records if record.name == "django-logic.transition"] == [
        f"{process.__name__}.go of {subject}: accepted for a worker, new -> busy",
        f"{process.__name__}.go of {subject}: busy -> done",
        f"{process.__name__}.act of {subject}: accepted for a worker, state unchanged",
        f"{process.__name__}.act of {subject}: done",
    ]
    lines = [record for record in caplog.records if record.name == "django-logic.transition"]
    assert {vars(record)["transition_id"] for record in lines[:2]} == {str(messages(ticket)[0].transition_id)}
    assert "hunter2" not in caplog.text


def test_log_line_of_a_failure_has_no_keywords_either(
    flow: Flow, ticket: Ticket, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Retries, failures, supersession and deferral never print what the caller passed.
    """
    caplog.set_level(logging.DEBUG)
    flow(work(lambda instance, **kw: 1 / 0, max_errors=2))
    other = new_ticket()
    ticket.flow.go(password="hunter2")
    other.flow.go(password="hunter2")
    Ticket.objects.filter(pk=other.pk).update(state="elsewhere")
    run_out()

    lines = [record.getMessage() for record in caplog.records if record.name.startswith("django-logic")]
    assert any("attempt 1 of 2 failed" in line for line in lines)
    assert not any("hunter2" in line for line in lines)


def test_busy_refusal_is_a_warning_and_others_are_daily_life(
    flow: Flow, ticket: Ticket, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Contention is logged at WARNING, never at ERROR.
    """
    flow(work())
    ticket.flow.go()
    caplog.set_level(logging.INFO, "django-logic.transition")
    with pytest.raises(TransitionNotAllowed):
        ticket.flow.go()

    assert [record.levelname for record in caplog.records] == ["WARNING"]


def entries(ticket: Ticket) -> list[Any]:
    """
    Read the audit entries of an object.
    """
    found = AuditEntry.objects.filter(instance_id=str(ticket.pk)).order_by("pk")
    return list(found.values_list("outcome", "code", "from_state", "to_state"))


def test_audit_tells_the_success_once(flow: Flow, ticket: Ticket, clerk: Any, settings: Any) -> None:
    """
    AUDIT="all": the move to the target is one entry with the call's actor and ids; the busy move is none.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    flow(work(), act(sources=["done"]))
    ticket.flow.go(user=clerk, reason="asked")
    at_the_call = entries(ticket)
    run_available()
    Ticket.objects.get(pk=ticket.pk).flow.act()
    run_available()

    assert at_the_call == []
    assert entries(ticket) == [("moved", "", "busy", "done"), ("done", "", "done", None)]
    first = AuditEntry.objects.order_by("pk")[0]
    assert (first.actor_label, first.reason, first.transition_id) == (
        *("clerk", "asked"),
        ticket.flow.history[0].transition_id,
    )


@pytest.mark.parametrize("level", ["refusals", "all"])
def test_audit_tells_the_final_failure_and_the_refusal(flow: Flow, ticket: Ticket, level: str, settings: Any) -> None:
    """
    A refused second call is an entry, so is the failure that ended the work; retries are none.
    """
    settings.DJANGO_LOGIC = {"AUDIT": level}
    flow(work(lambda instance, **kw: 1 / 0, max_errors=2))
    ticket.flow.go()
    with pytest.raises(TransitionNotAllowed):
        ticket.flow.go()
    run_out()

    assert [(outcome, code) for outcome, code, *_states in entries(ticket)] == [
        ("refused", "background_in_flight"),
        ("failed", ""),
    ]
    failed = AuditEntry.objects.get(outcome="failed")
    assert (failed.from_state, failed.to_state, failed.detail) == (
        *("busy", "failed"),
        "ZeroDivisionError: division by zero",
    )


def test_timeline_tells_each_event_once(flow: Flow, ticket: Ticket, settings: Any) -> None:
    """
    The timeline of an object merges the busy move, the final move and what was refused, each once.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    flow(work())
    ticket.flow.go()
    with pytest.raises(TransitionNotAllowed):
        ticket.flow.go()
    run_available()

    told = [(entry.kind, entry.from_state, entry.to_state) for entry in ticket.flow.timeline()]
    assert [(start, end) for kind, start, end in told if kind == "moved"] == [("new", "busy"), ("busy", "done")]
    assert len(told) == 3


@pytest.mark.parametrize("level", ["off", "all"])
def test_timeline_of_a_failure_calls_the_busy_move_a_move(
    flow: Flow, ticket: Ticket, level: str, settings: Any
) -> None:
    """
    Of the two moves of failed work only the one to failed_state is the failure.
    """
    settings.DJANGO_LOGIC = {"AUDIT": level}
    flow(work(lambda instance, **kw: 1 / 0, max_errors=1))
    ticket.flow.go()
    run_available()

    told = [(entry.kind, entry.from_state, entry.to_state) for entry in ticket.flow.timeline()]
    end = "failed" if level == "all" else "moved"
    assert told == [("moved", "new", "busy"), (end, "busy", "failed")]


def test_permanent_failure_is_told_with_its_own_exception(flow: Flow, ticket: Ticket) -> None:
    """
    The failed signal carries the exception the hook raised.
    """
    error = PermanentFailure("customs")

    def effect(instance: Any, **keywords: Any) -> None:
        raise error

    flow(work(effect, failed_state=None))
    with heard("failed") as found:
        ticket.flow.go()
        run_available()

    assert [(facts["exception"], facts["move"]) for *_rest, facts in found] == [(error, None)]
