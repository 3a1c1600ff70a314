"""
Prove the two nets: rows that spent every attempt are finished, ended ones are deleted in time; and what is reported.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_logic.background import PermanentFailure, attempt, run_available
from django_logic.background.models import Cancellation, TransitionMessage, Worker
from django_logic.background.safety_nets import cleanup_completed_transitions, detect_stuck_transitions, spread
from django_logic.background.worker.accounts import Account, Fate, enter
from tests.app.hooked import Boom, Diary, stored
from tests.app.models import Product, Ticket
from tests.background.flows import Flow, age, make_due, message, messages, new_ticket, run_out, work
from tests.races import together

pytestmark = pytest.mark.django_db(transaction=True)

WEEK = timedelta(days=7, minutes=1)


class Pulled(BaseException):
    """
    Stand for a process that dies.
    """


def pull(instance: Any, **keywords: Any) -> None:
    """
    Die.
    """
    raise Pulled


def die_once(ticket: Ticket) -> None:
    """
    Let an attempt of an object die and its lease end.
    """
    with pytest.raises(Pulled):
        attempt.run(messages(ticket)[0].pk)
    make_due()


def test_row_that_spent_every_attempt_is_finished(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    A row whose last attempt died is ended by the failure path: failed_state, failure callbacks, no duration.
    """
    flow(work(pull, max_errors=1, failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()
    die_once(ticket)

    finished = detect_stuck_transitions()
    run_out()

    row = message(ticket)
    assert (finished, row.outcome, row.ended_in_failure, row.duration_ms) == (1, "failed", True, None)
    assert (row.attempts_started, row.errors_count, stored(ticket)) == (1, 1, "failed")
    assert [(name, state) for name, state, _error in diary] == [("compensate", "failed")]
    assert detect_stuck_transitions() == 0


def test_row_with_attempts_left_is_left_to_the_workers(flow: Flow, ticket: Ticket) -> None:
    """
    The net finishes what is spent and runs no side effect.
    """
    ran: list[int] = []
    flow(work(lambda instance, **kw: ran.append(1)))
    ticket.flow.go()

    assert (detect_stuck_transitions(), ran, message(ticket).is_completed) == (0, [], False)


def test_manual_fix_of_a_spent_row_wins(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    The finaliser has the same guard as an attempt: superseded, no hooks.
    """
    flow(work(pull, max_errors=1, failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()
    die_once(ticket)
    Ticket.objects.update(state="mended by hand")

    detect_stuck_transitions()

    assert (message(ticket).outcome, stored(ticket), diary) == ("superseded", "mended by hand", [])


def test_leased_row_is_not_finished(flow: Flow, ticket: Ticket) -> None:
    """
    An attempt may still begin while the lease lives, so a spent row waits for its end.
    """
    flow(work(pull, max_errors=1))
    ticket.flow.go()
    with pytest.raises(Pulled):
        attempt.run(message(ticket).pk)

    assert (detect_stuck_transitions(), message(ticket).is_completed) == (0, False)


def test_held_row_is_not_finished(flow: Flow, ticket: Ticket) -> None:
    """
    A spent row that somebody holds, as a running last attempt does, is skipped without waiting.
    """
    if not connection.features.has_select_for_update_skip_locked:
        pytest.skip("this database can't skip what another session holds")
    flow(work(pull, max_errors=1))
    ticket.flow.go()
    die_once(ticket)

    with transaction.atomic():
        TransitionMessage.objects.select_for_update().get(pk=message(ticket).pk)
        held = together.Worker(detect_stuck_transitions).result()

    assert (held, detect_stuck_transitions()) == (0, 1)


def test_one_bad_row_does_not_keep_the_others_waiting(flow: Flow, ticket: Ticket) -> None:
    """
    Rows that can't be restored, or whose keywords are corrupt, are passed over or closed; the rest is finished.
    """
    flow(work(pull, max_errors=1))
    tickets = [ticket, *(new_ticket() for _ in range(3))]
    for found in tickets:
        found.flow.go()
        die_once(found)
    TransitionMessage.objects.filter(pk=message(tickets[0]).pk).update(kwargs=[1])
    TransitionMessage.objects.filter(pk=message(tickets[1]).pk).update(process_class="nowhere.Gone")
    Ticket.objects.filter(pk=tickets[2].pk).delete()

    detect_stuck_transitions()

    assert (stored(tickets[3]), message(tickets[3]).outcome) == ("failed", "failed")
    assert stored(tickets[0]) == "failed"
    assert TransitionMessage.objects.open().count() == 0


def test_late_rows_are_one_line_for_each_queue(flow: Flow, ticket: Ticket, caplog: pytest.LogCaptureFixture) -> None:
    """
    However many rows wait too long, each queue is one line: an ERROR with the command when nobody serves it, else a
    WARNING of a deep backlog.
    """
    flow(work(queue="served"), work(action="alone", queue="nobody"))
    for _ in range(5):
        new_ticket().flow.go()
        new_ticket().flow.alone()
    ticket.flow.go()
    TransitionMessage.objects.exclude(instance_id=str(ticket.pk)).update(run_at=timezone.now() - timedelta(minutes=20))
    Worker.objects.create(
        id=uuid4(),
        name="w",
        host="h",
        pid=1,
        queues=["served"],
        started_at=timezone.now(),
        last_seen_at=timezone.now(),
    )
    caplog.set_level(logging.INFO, "django-logic.worker")

    detect_stuck_transitions()

    lines = sorted((record.levelname, record.getMessage()) for record in caplog.records)
    assert [level for level, _text in lines] == ["ERROR", "WARNING"]
    assert "'nobody': 5 rows" in lines[0][1]
    assert "dl_worker --queues nobody" in lines[0][1]
    assert "'served': 5 rows" in lines[1][1]


def test_rows_that_wait_for_their_time_are_not_reported(
    flow: Flow, ticket: Ticket, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Delays, pauses and spent callbacks are no backlog.
    """
    flow(work(), work(action="tell", callbacks=[lambda instance, **kw: 1 / 0], max_errors=1))
    ticket.flow.go(delay=86_400)
    other = new_ticket()
    other.flow.tell()
    run_out_but(ticket)
    TransitionMessage.objects.update(created=timezone.now() - timedelta(days=3))
    caplog.clear()

    detect_stuck_transitions()

    assert [record for record in caplog.records if record.name == "django-logic.worker"] == []


def run_out_but(ticket: Ticket) -> None:
    """
    Run what is due, the delayed row of one object left alone.
    """
    while run_available():
        pass
    assert message(ticket).is_completed is False


def end(ticket: Ticket, ago: timedelta) -> TransitionMessage:
    """
    Let the rows of an object have been saved and ended so long ago.
    """
    for row in messages(ticket):
        age(row, ago, "created", "completed_at", "modified")
    return messages(ticket)[0]


def test_ended_rows_are_deleted_after_their_days(flow: Flow, ticket: Ticket, settings: Any) -> None:
    """
    Rows that ended longer ago than TRANSITION_MESSAGE_CLEANUP_DAYS go, callbacks included; younger and open ones stay.
    """
    flow(work(callbacks=[lambda instance, **kw: None]))
    young, waiting = new_ticket(), new_ticket()
    for found in (ticket, young):
        found.flow.go()
    run_out()
    waiting.flow.go(delay=86_400)
    end(ticket, WEEK)
    end(young, timedelta(days=6))
    TransitionMessage.objects.open().update(created=timezone.now() - timedelta(days=30))

    deleted = cleanup_completed_transitions()
    settings.DJANGO_LOGIC = {"TRANSITION_MESSAGE_CLEANUP_DAYS": 5}
    again = cleanup_completed_transitions()

    assert (deleted, again) == (2, 2)
    assert [len(messages(found)) for found in (ticket, young, waiting)] == [0, 0, 1]


def test_newest_failed_row_of_an_object_and_process_stays(flow: Flow, ticket: Ticket) -> None:
    """
    It alone says why the object is where it is: kept by that it failed, not by how many errors it had.
    """

    def refuse(instance: Any, **keywords: Any) -> None:
        raise PermanentFailure("customs")

    flow(work(action="fine", sources=["new", "failed", "done"]), work(refuse, sources=["new", "failed", "done"]))
    for action in ("go", "fine", "go", "fine"):
        getattr(Ticket.objects.get(pk=ticket.pk).flow, action)()
        run_out()
    end(ticket, WEEK)

    deleted = cleanup_completed_transitions()

    (kept,) = messages(ticket)
    assert (deleted, kept.transition_name, kept.errors_count, kept.ended_in_failure) == (3, "go", 1, True)
    assert cleanup_completed_transitions() == 0


def test_cleanup_goes_on_behind_rows_that_stay(flow: Flow) -> None:
    """
    Kept and open rows in between do not stop the cleanup, however many batches there are.
    """
    flow(work())
    ticket = new_ticket()
    ticket.flow.go()
    run_out()
    pattern = messages(ticket)[0]
    names = [entry.attname for entry in pattern._meta.concrete_fields if entry.attname != "id"]
    values = {name: getattr(pattern, name) for name in names}
    copies = [
        TransitionMessage(**{**values, "instance_id": f"x{number}", "ended_in_failure": number % 3 == 0})
        for number in range(2_500)
    ]
    TransitionMessage.objects.bulk_create(copies, batch_size=500)
    past = timezone.now() - WEEK
    TransitionMessage.objects.update(created=past, completed_at=past)
    TransitionMessage.objects.filter(instance_id="x1").update(is_completed=False, outcome="", completed_at=None)

    deleted = cleanup_completed_transitions()

    kept = TransitionMessage.objects.all()
    assert kept.filter(ended_in_failure=True).count() == kept.count() - 1 == 834
    assert deleted == 2_501 - kept.count()


def test_row_that_was_saved_long_ago_and_ended_just_now_stays(flow: Flow, ticket: Ticket) -> None:
    """
    The days count from the end of the work.
    """
    flow(work())
    ticket.flow.go()
    run_out()
    age(message(ticket), timedelta(days=30), "created")

    assert cleanup_completed_transitions() == 0
    assert len(messages(ticket)) == 1


def test_spread_does_both_and_forgets_workers_of_yesterday(flow: Flow, ticket: Ticket) -> None:
    """
    One call does all that is due once a minute.
    """
    flow(work(pull, max_errors=1), work(action="fine", queue="b"))
    other = new_ticket()
    ticket.flow.go()
    die_once(ticket)
    other.flow.fine()
    run_available(["b"])
    end(other, WEEK)
    for days in (0, 2):
        seen = timezone.now() - timedelta(days=days)
        Worker.objects.create(id=uuid4(), name=str(days), host="h", pid=1, started_at=seen, last_seen_at=seen)

    spread()

    assert (message(ticket).outcome, messages(other)) == ("failed", [])
    assert list(Worker.objects.values_list("name", flat=True)) == ["0"]


def claimed(ticket: Ticket) -> TransitionMessage:
    """
    Let an attempt of an object die, and return its row as the claim left it.
    """
    with pytest.raises(Pulled):
        attempt.run(messages(ticket)[0].pk)
    return messages(ticket)[0]


@pytest.mark.parametrize("fate", [Fate.CRASHED, Fate.TIMEOUT])
def test_account_of_a_dead_attempt_counts_it_once(flow: Flow, ticket: Ticket, fate: Fate) -> None:
    """
    One attempt is charged once: entering the account again, or claiming afterwards, adds nothing.
    """
    flow(work(pull))
    ticket.flow.go()
    row = claimed(ticket)
    account = Account(message_id=row.pk, token=str(row.claim_token), fate=fate, text="killed by signal 9")

    answers = [enter(account, "default"), enter(account, "default")]

    row = message(ticket)
    assert answers == [True, True]
    assert (row.errors_count, row.attempts_started, row.claim_token) == (1, 1, None)
    assert row.last_error_message == f"[{fate}] killed by signal 9"
    assert timedelta(seconds=119) < row.run_at - row.modified < timedelta(seconds=121)


def test_account_of_a_released_attempt_gives_its_count_back(flow: Flow, ticket: Ticket) -> None:
    """
    An attempt that was ended by a shutdown costs nothing and is due at once.
    """
    flow(work(pull))
    ticket.flow.go()
    row = claimed(ticket)

    enter(Account(message_id=row.pk, token=str(row.claim_token), fate=Fate.RELEASED), "default")

    row = message(ticket)
    assert (row.errors_count, row.attempts_started, row.last_error_message) == (0, 0, "")
    assert row.run_at <= row.modified


def test_account_does_not_touch_a_row_that_has_ended(flow: Flow, ticket: Ticket) -> None:
    """
    A row another attempt has finished meanwhile stays as it ended.
    """
    turns = [Pulled()]

    def effect(instance: Any, **keywords: Any) -> None:
        if turns:
            raise turns.pop()

    flow(work(effect))
    ticket.flow.go()
    row = claimed(ticket)
    make_due()
    run_available()
    ended = message(ticket)

    answer = enter(Account(message_id=row.pk, token=str(row.claim_token), fate=Fate.CRASHED, text="late"), "default")

    assert answer is True
    assert (ended.outcome, message(ticket).errors_count, message(ticket).modified) == ("succeeded", 1, ended.modified)


def test_account_does_not_touch_the_claim_of_another(flow: Flow, ticket: Ticket) -> None:
    """
    A row that was claimed again meanwhile is charged for its own attempt only.
    """
    flow(work(pull))
    ticket.flow.go()
    row = claimed(ticket)
    make_due()
    second = claimed(ticket)

    answer = enter(Account(message_id=row.pk, token=str(row.claim_token), fate=Fate.CRASHED, text="late"), "default")

    found = message(ticket)
    assert answer is True
    assert (found.claim_token, found.attempts_started, found.errors_count) == (second.claim_token, 2, 1)
    assert "late" not in found.last_error_message


def test_account_waits_for_nobody_who_holds_the_row(flow: Flow, ticket: Ticket) -> None:
    """
    While a dying session still holds the row the account does not block: it is tried again later.
    """
    if not connection.features.has_select_for_update_skip_locked:
        pytest.skip("this database can't skip what another session holds")
    flow(work(pull))
    ticket.flow.go()
    row = claimed(ticket)
    account = Account(message_id=row.pk, token=str(row.claim_token), fate=Fate.CRASHED, text="gone")

    with transaction.atomic():
        TransitionMessage.objects.select_for_update().get(pk=row.pk)
        held = together.Worker(lambda: enter(account, "default")).result()
    later = enter(account, "default")

    assert (held, later, message(ticket).errors_count) == (False, True, 1)


def test_account_survives_its_line() -> None:
    """
    What is written on a pipe is read back as it was, whatever the text.
    """
    account = Account(message_id=2**40, token=str(uuid4()), fate=Fate.TIMEOUT, text='line\nbreak "é" \x00')

    line = account.as_line()

    assert line.count(b"\n") == 1
    assert Account.from_line(line) == account


def test_last_account_makes_the_row_due_for_its_end(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    When the crashed attempt was the last one, the next claim takes the failure path without a pause.
    """
    flow(work(pull, max_errors=1, failure_callbacks=[diary.hook("compensate")]))
    ticket.flow.go()
    row = claimed(ticket)
    enter(Account(message_id=row.pk, token=str(row.claim_token), fate=Fate.CRASHED, text="exit status 7"), "default")

    run_available()

    row = message(ticket)
    assert (row.outcome, row.last_error_message, stored(ticket)) == ("failed", "[crashed] exit status 7", "failed")
    assert diary.names == ["compensate"]


def test_requests_to_cancel_go_with_their_rows(flow: Flow, ticket: Ticket) -> None:
    """
    A request that came too late is deleted with the row it was about.
    """
    flow(work(lambda instance, **kw: Product.objects.create(name="effect"), callbacks=[lambda instance, **kw: None]))
    ticket.flow.go()
    run_out()
    Cancellation.objects.create(message_id=message(ticket).pk)
    end(ticket, WEEK)

    cleanup_completed_transitions()

    assert not Cancellation.objects.exists()


def test_failing_callback_rows_are_none_of_the_nets_business(flow: Flow, ticket: Ticket) -> None:
    """
    A spent callback waits for an operator: the net neither runs nor ends it.
    """

    def mail(instance: Any, **keywords: Any) -> None:
        raise Boom

    flow(work(callbacks=[mail], max_errors=1))
    ticket.flow.go()
    run_out()

    assert detect_stuck_transitions() == 0
    assert [row.is_completed for row in messages(ticket, "callback")] == [False]
