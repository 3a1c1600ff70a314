"""
Prove what an operator can do to a row: make it due now, or give it fresh attempts; and what is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from django_logic.background import Backoff, attempt, claim, run_available
from django_logic.background.claim import TokenLost
from django_logic.background.explain import Code
from django_logic.background.mending import CannotMend, retry, send
from django_logic.background.models import TransitionMessage
from django_logic.background.settle import Ended
from tests.app.hooked import Boom, moves, stored
from tests.app.models import Ticket
from tests.background.flows import Flow, make_due, message, messages, new_ticket, rename, run_out, work
from tests.background.onlookers import codes, lock, session, told

pytestmark = pytest.mark.django_db(transaction=True)

IN_TEN_MINUTES = Backoff(first=600, factor=1, limit=600, jitter=0)


def flaky(times: int) -> Callable[..., None]:
    """
    Make a hook that fails so many times.
    """
    left = [times]

    def fail(instance: Any, **keywords: Any) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise Boom("not yet")

    return fail


def is_staff(instance: Any, user: Any, **keywords: Any) -> bool:
    """
    Let staff pass.
    """
    return bool(user.is_staff)


def called(flow: Flow, *side_effects: Any, delay: float = 0, **options: Any) -> Ticket:
    """
    Declare background work, and make the call for a new object.
    """
    flow(work(*side_effects, **options))
    ticket = new_ticket()
    ticket.flow.go(delay=delay)
    return ticket


def test_sent_row_is_due_now_and_keeps_its_errors(flow: Flow) -> None:
    """
    Sending ends the pause after an error; nothing runs by it, and the count of errors stays.
    """
    ticket = called(flow, flaky(1), retry=IN_TEN_MINUTES)
    run_available()
    before = run_available()

    send(message(ticket).pk)

    assert (before, message(ticket).errors_count, stored(ticket)) == (0, 1, "busy")
    assert (run_available(), stored(ticket)) == (1, "done")


def test_sent_row_ends_its_delay(flow: Flow) -> None:
    """
    A row that was scheduled for later runs with the next claim.
    """
    ticket = called(flow, delay=600)

    send(message(ticket).pk)

    assert (run_available(), stored(ticket)) == (1, "done")


def test_row_that_is_due_keeps_its_place_when_sent(flow: Flow) -> None:
    """
    Sending a row that waits for nothing does not put it behind others.
    """
    ticket = called(flow)
    before = message(ticket).run_at

    send(message(ticket).pk)

    assert message(ticket).run_at == before


def test_sent_row_is_taken_from_an_attempt_that_died_and_fenced_off_from_it(flow: Flow) -> None:
    """
    Sending ends the lease of a claim; should its attempt live after all, nothing of it is kept.
    """
    ticket = called(flow)
    late = claim.take("default", message(ticket).pk)
    assert late is not None

    send(message(ticket).pk)

    outcome = attempt.run_claimed(late, "default")
    assert outcome.ended is Ended.LOST
    assert (run_available(), stored(ticket)) == (1, "done")
    assert (message(ticket).attempts_started, message(ticket).errors_count) == (2, 1)


def test_sent_callback_brings_those_that_wait_for_it(flow: Flow) -> None:
    """
    Rows that were paused with a failed one of their object are due when it is.
    """
    ticket = called(flow, callbacks=[flaky(1), flaky(0)], retry=IN_TEN_MINUTES)
    run_available()

    send(messages(ticket, "callback")[0].pk)

    assert run_available() == 2
    assert codes() == []


def test_sent_callback_leaves_the_pauses_of_others_alone(flow: Flow) -> None:
    """
    A row behind it that has failed by itself keeps its own pause.
    """
    ticket = called(flow, callbacks=[flaky(1), flaky(1)], retry=IN_TEN_MINUTES)
    run_available()
    first, second = messages(ticket, "callback")
    TransitionMessage.objects.filter(pk=second.pk).update(errors_count=1, attempts_started=1)

    send(first.pk)

    assert run_available() == 1
    assert told(second.pk).code is Code.RETRY_PAUSE_UNTIL


def test_unknown_ended_and_spent_rows_are_not_sent(flow: Flow) -> None:
    """
    What can't run is refused with what it is and, where there is any, the command that helps.
    """
    ended = called(flow, callbacks=[flaky(9)], max_errors=1)
    run_out()
    spent = message(ended, "callback").pk
    refusals = []

    for pk in (999_999, message(ended).pk, spent):
        with pytest.raises(CannotMend) as caught:
            send(pk)
        refusals.append(str(caught.value))

    assert refusals == [
        "There is no row 999999. See which there are: manage.py dl_transitions.",
        f"Row {message(ended).pk} has ended: succeeded. Nothing waits.",
        f"Row {spent} has spent every attempt. Give it fresh ones: manage.py dl_transitions --retry {spent}",
    ]


@pytest.mark.parametrize("mend", [send, retry])
def test_row_that_somebody_holds_is_refused_at_once(only_postgres: None, flow: Flow, mend: Any) -> None:
    """
    Nobody waits for an attempt to end: a held row is refused.
    """
    ticket = called(flow)
    with session() as other:
        lock(other, message(ticket).pk)

        with pytest.raises(CannotMend, match="is held: an attempt runs"):
            mend(message(ticket).pk)


def test_spent_callback_gets_fresh_attempts(flow: Flow) -> None:
    """
    A durable row that waits for an operator runs again, as often as before.
    """
    ticket = called(flow, callbacks=[flaky(3)], max_errors=2)
    run_out()
    pk = message(ticket, "callback").pk

    again = retry(pk)

    assert again == pk
    assert run_out() == 2
    assert message(ticket, "callback").outcome == "succeeded"


def test_spent_transition_gets_fresh_attempts_before_upkeep_ends_it(flow: Flow) -> None:
    """
    A row whose last attempt died runs again instead of failing, if an operator is faster.
    """
    ticket = called(flow, max_errors=1)
    claim.take("default", message(ticket).pk)
    make_due()

    assert retry(message(ticket).pk) == message(ticket).pk

    assert (run_available(), stored(ticket), message(ticket).attempts_started) == (1, "done", 1)


def test_row_with_attempts_left_is_not_retried(flow: Flow) -> None:
    """
    What is not spent is to be sent.
    """
    ticket = called(flow, flaky(1), retry=IN_TEN_MINUTES)
    run_available()
    pk = message(ticket).pk

    with pytest.raises(CannotMend, match=f"Row {pk} has attempts left. Make it due now: .* --send {pk}"):
        retry(pk)


def test_failed_transition_is_called_again_with_all_it_was_called_with(flow: Flow) -> None:
    """
    A failed row leads to a new one: the same keywords, people and reason, descending from the call that failed.
    """
    seen: list[Any] = []

    def effect(instance: Any, user: Any, reason: str, lines: Any, **keywords: Any) -> None:
        seen.append((user, reason, lines))
        if len(seen) == 1:
            raise Boom("not yet")

    flow(work(effect, sources=["new", "failed"], permissions=[is_staff], max_errors=1))
    ada, ticket = User.objects.create(username="ada", is_staff=True), new_ticket()
    ticket.flow.go(user=ada, reason="because", lines=(1, 2))
    run_available()

    again = retry(message(ticket).pk)

    failed, fresh = messages(ticket, "transition")
    assert (failed.outcome, fresh.pk) == ("failed", again)
    assert (fresh.parent_id, fresh.root_id, fresh.actor_label) == (failed.transition_id, failed.root_id, "ada")
    assert (run_available(), stored(ticket)) == (1, "done")
    assert seen == [(ada, "because", (1, 2))] * 2
    assert moves(ticket, "flow") == [("new", "busy"), ("busy", "failed"), ("failed", "busy"), ("busy", "done")]


def test_failed_transition_is_called_again_only_where_the_state_allows(flow: Flow) -> None:
    """
    An object whose state is no source stays where it is, and the refusal names the state.
    """
    ticket = called(flow, flaky(9), max_errors=1)
    run_available()
    pk = message(ticket).pk

    with pytest.raises(CannotMend, match=rf"Row {pk} can't be retried: .*'failed'"):
        retry(pk)

    assert (stored(ticket), len(messages(ticket))) == ("failed", 1)


def test_call_is_judged_anew_as_the_same_user(flow: Flow) -> None:
    """
    Who has lost the right meanwhile does not get it back by an operator's retry.
    """
    flow(work(flaky(9), sources=["new", "failed"], permissions=[is_staff], max_errors=1))
    ada, ticket = User.objects.create(username="ada", is_staff=True), new_ticket()
    ticket.flow.go(user=ada)
    run_available()
    User.objects.update(is_staff=False)

    with pytest.raises(CannotMend, match="can't be retried"):
        retry(message(ticket).pk)


@pytest.mark.parametrize("loss", ["object", "code"])
def test_call_whose_object_or_code_is_gone_is_refused_in_words(flow: Flow, loss: str) -> None:
    """
    What can't be restored can't be called again.
    """
    process_class = flow(work(flaky(9), sources=["new", "failed"], max_errors=1))
    ticket = new_ticket()
    ticket.flow.go()
    run_available()
    pk, name = message(ticket).pk, process_class.__name__
    if loss == "object":
        Ticket.objects.all().delete()
    else:
        rename(process_class, f"{name}Elsewhere")

    with pytest.raises(CannotMend) as caught:
        retry(pk)

    if loss == "code":
        rename(process_class, name)
    assert ("is gone" if loss == "object" else name) in str(caught.value)


def test_what_succeeded_or_follows_a_transition_is_not_called_again(flow: Flow) -> None:
    """
    Only a failed transition is a call to make again.
    """
    ticket = called(flow, callbacks=[flaky(0)])
    run_out()

    for row in messages(ticket):
        with pytest.raises(CannotMend, match="Only a failed transition can be retried"):
            retry(row.pk)


def test_attempt_that_lost_its_row_to_an_operator_can_not_hold_it(flow: Flow) -> None:
    """
    The claim's token is gone with the sending, so the lock is refused to the late attempt.
    """
    ticket = called(flow)
    late = claim.take("default", message(ticket).pk)
    assert late is not None
    send(message(ticket).pk)

    with pytest.raises(TokenLost), transaction.atomic():
        claim.hold(late, "default")
