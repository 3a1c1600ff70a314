"""
Prove when a row is due, and in which order rows that are due run.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_logic import Transition
from django_logic.background import attempt, retry_pending, run_available, sync_execution
from django_logic.background.models import TransitionMessage
from tests.app.hooked import Boom, Diary, stored
from tests.app.models import Ticket
from tests.background.flows import AT_ONCE, Flow, act, age, make_due, message, new_ticket, work

pytestmark = pytest.mark.django_db(transaction=True)


def noting_keys(ran: list[Any]) -> Any:
    """
    Make a side effect that writes down whose it is.
    """

    def effect(instance: Any, **keywords: Any) -> None:
        ran.append(instance.pk)

    return effect


@pytest.mark.parametrize("delay", [3600, 3600.0, timedelta(hours=1)])
def test_delay_counts_from_now_by_the_database_clock(flow: Flow, ticket: Ticket, delay: Any) -> None:
    """
    delay= takes seconds or a timedelta; the row waits for it and is run afterwards.
    """
    flow(work())

    accepted = ticket.flow.go(delay=delay)
    row = message(ticket)
    before = (run_available(), stored(ticket))
    make_due()

    assert accepted is True
    assert abs((row.run_at - row.created) - timedelta(hours=1)) < timedelta(milliseconds=20)
    assert before == (0, "busy")
    assert (run_available(), stored(ticket)) == (1, "done")


def test_run_at_is_kept_as_it_was_given(flow: Flow, ticket: Ticket) -> None:
    """
    run_at= is the moment the row is due, to the microsecond, whatever its zone.
    """
    flow(work())
    moment = timezone.now() + timedelta(hours=2, microseconds=17)

    ticket.flow.go(run_at=moment.astimezone(timezone.get_fixed_timezone(330)))

    assert message(ticket).run_at == moment
    assert run_available() == 0


def test_run_at_in_the_past_is_due_at_once(flow: Flow, ticket: Ticket) -> None:
    """
    A moment that has passed is no mistake: the row is due.
    """
    flow(work())

    ticket.flow.go(run_at=datetime(2020, 1, 1, tzinfo=UTC))

    assert (run_available(), stored(ticket)) == (1, "done")


@pytest.mark.parametrize(
    ("schedule", "error"),
    [
        ({"run_at": datetime(2030, 1, 1)}, ValueError),  # noqa: DTZ001 (the mistake that is refused)
        ({"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 5}, TypeError),
        ({"run_at": 5}, TypeError),
        ({"run_at": "2030-01-01"}, TypeError),
        ({"run_at": date(2030, 1, 1)}, TypeError),
        ({"run_at": timedelta(1)}, TypeError),
        ({"delay": -1}, ValueError),
        ({"delay": timedelta(seconds=-1)}, ValueError),
        ({"delay": float("nan")}, ValueError),
        ({"delay": float("inf")}, ValueError),
        ({"delay": True}, TypeError),
        ({"delay": "5"}, TypeError),
        ({"delay": 10**12}, ValueError),
        ({"delay": 1e300}, ValueError),
        ({"delay": timedelta.max}, ValueError),
    ],
)
def test_times_that_make_no_sense_are_refused(
    flow: Flow, ticket: Ticket, schedule: dict[str, Any], error: type[Exception]
) -> None:
    """
    A naive time, a past delay, both at once, another type or a time beyond every calendar: refused, nothing saved.
    """
    flow(work())

    with pytest.raises(error, match=r"run_at|delay"):
        ticket.flow.go(**schedule)

    assert (TransitionMessage.objects.count(), stored(ticket), ticket.state) == (0, "new", "new")


def test_no_hook_gets_the_schedule(flow: Flow, ticket: Ticket) -> None:
    """
    run_at= and delay= speak of the row: neither guards nor side effects nor what follows receive them.
    """
    seen: list[Any] = []

    def note(instance: Any, **keywords: Any) -> bool:
        seen.append({"run_at", "delay"} & set(keywords))
        return True

    flow(
        work(note, conditions=[note], callbacks=[note], next_transition="on"), work(note, action="on", sources=["done"])
    )

    ticket.flow.go(delay=60)
    make_due()
    run_available()

    assert seen == [set()] * 4


def test_delayed_row_keeps_the_object_busy(flow: Flow, ticket: Ticket) -> None:
    """
    A row that waits for its time is open: nothing else moves the object.
    """
    flow(work(), Transition("stop", ["busy"], "stopped"))

    ticket.flow.go(delay=3600)

    assert ticket.flow.get_available_actions() == []
    assert [reason.code for reason in ticket.flow.why_not("stop")] == ["background_in_flight"]


def test_delayed_row_waits_in_sync_mode_too(flow: Flow, ticket: Ticket) -> None:
    """
    Sync mode runs what is due in the call; a delayed row waits.
    """
    flow(work())

    with sync_execution():
        ticket.flow.go(delay=3600)

    assert (stored(ticket), message(ticket).is_completed) == ("busy", False)


def test_attempt_run_takes_a_row_whatever_its_time_and_queue(flow: Flow, ticket: Ticket) -> None:
    """
    attempt.run(pk) does not ask for the queue or the time.
    """
    flow(work(queue="nobody serves it"))
    ticket.flow.go(delay=3600)

    outcome = attempt.run(message(ticket).pk)

    assert outcome is not None
    assert (outcome.ended, outcome.message_id, outcome.error) == ("succeeded", message(ticket).pk, None)
    assert stored(ticket) == "done"


def test_smaller_priority_runs_first_across_queues(flow: Flow) -> None:
    """
    Rows run by priority, then by the time they were due, then by id, whatever their queue.
    """
    ran: list[Any] = []
    flow(
        work(noting_keys(ran), action="normal", queue="a"),
        work(noting_keys(ran), action="urgent", queue="b", priority=-5),
        work(noting_keys(ran), action="idle", queue="a", priority=5),
    )
    tickets = {name: [new_ticket(), new_ticket()] for name in ("idle", "normal", "urgent")}
    for name, pair in tickets.items():
        for ticket in reversed(pair):
            getattr(ticket.flow, name)()

    run_available()

    assert ran == [ticket.pk for name in ("urgent", "normal", "idle") for ticket in reversed(tickets[name])]


def test_longest_due_row_of_a_priority_runs_first(flow: Flow) -> None:
    """
    Within a priority the row that has been due for longest comes first, whatever its id.
    """
    ran: list[Any] = []
    flow(work(noting_keys(ran)))
    tickets = [new_ticket() for _ in range(3)]
    for ticket, minutes in zip(tickets, (1, 3, 2), strict=True):
        ticket.flow.go()
        age(message(ticket), timedelta(minutes=minutes), "run_at")

    run_available()

    assert ran == [tickets[1].pk, tickets[2].pk, tickets[0].pk]


def test_rows_due_at_the_same_moment_run_in_the_order_they_were_saved(flow: Flow) -> None:
    """
    Equal times are told apart by id.
    """
    ran: list[Any] = []
    flow(work(noting_keys(ran)))
    tickets = [new_ticket() for _ in range(4)]
    for ticket in (tickets[2], tickets[0], tickets[3], tickets[1]):
        ticket.flow.go(run_at=datetime(2024, 1, 1, tzinfo=UTC))

    run_available()

    assert ran == [tickets[place].pk for place in (2, 0, 3, 1)]


def test_run_available_serves_the_queues_it_is_given(flow: Flow) -> None:
    """
    Only rows of the named queues run; without names those of all queues do.
    """
    ran: list[Any] = []
    flow(*(work(noting_keys(ran), action=name, queue=name) for name in ("a", "b", "c")))
    tickets = [new_ticket() for _ in range(3)]
    for ticket, name in zip(tickets, ("a", "b", "c"), strict=True):
        getattr(ticket.flow, name)()

    counts = [
        run_available(["b", "nothing"]),
        run_available([]),
        run_available(queues=iter(["c", "a"])),
        run_available(),
    ]

    assert counts == [1, 0, 2, 0]
    assert ran == [tickets[1].pk, tickets[0].pk, tickets[2].pk]


def test_run_available_refuses_queues_given_as_text(flow: Flow, ticket: Ticket) -> None:
    """
    A text would be read letter by letter, and nothing would run in silence.
    """
    flow(work(queue="critical"))
    ticket.flow.go()

    with pytest.raises(TypeError, match="critical"):
        run_available("critical")


def test_run_available_stops_at_its_limit(flow: Flow) -> None:
    """
    limit= counts rows, durable ones included; 0 runs nothing.
    """
    flow(work(callbacks=[lambda instance, **kw: None]))
    for _ in range(3):
        new_ticket().flow.go()

    assert [run_available(limit=0), run_available(limit=2), run_available(limit=3), run_available()] == [0, 2, 3, 1]


def test_run_available_leaves_a_row_that_comes_due_again_to_the_next_call(flow: Flow, ticket: Ticket) -> None:
    """
    A row whose pause is nothing runs once in each call.
    """
    flow(work(lambda instance, **kw: 1 / 0, retry=AT_ONCE, max_errors=3))
    ticket.flow.go()

    counts = [run_available() for _ in range(4)]

    assert counts == [1, 1, 1, 0]
    assert (message(ticket).attempts_started, message(ticket).errors_count) == (3, 3)


def test_row_that_comes_due_again_does_not_keep_others_from_running(flow: Flow, diary: Diary) -> None:
    """
    An urgent row that fails without a pause comes first again and again; what is behind it runs all the same.
    """
    flow(
        work(diary.hook("urgent", Boom()), action="urgent", priority=-1, retry=AT_ONCE),
        work(diary.hook("normal"), action="normal"),
    )
    failing, fine = new_ticket(), new_ticket()
    failing.flow.urgent()
    fine.flow.normal()

    counts = [run_available(), run_available()]

    assert counts == [2, 1]
    assert diary.names == ["urgent", "normal", "urgent"]
    assert (message(failing).attempts_started, message(failing).errors_count) == (2, 2)


def test_run_available_runs_what_becomes_due_on_its_way(flow: Flow, ticket: Ticket) -> None:
    """
    Rows that follow are run in the same call, in whichever queue and priority they are.
    """
    flow(
        work(queue="a", priority=3, next_transition="on"),
        work(action="on", sources=["done"], target="over", queue="b", priority=9, in_progress_state="moving"),
    )
    ticket.flow.go()

    assert run_available() == 3
    assert stored(ticket) == "over"


def test_run_available_within_a_transaction_lives_and_dies_with_it(flow: Flow, ticket: Ticket) -> None:
    """
    Inside the caller's transaction attempts are undone with it, their counts included.
    """
    flow(work())
    ticket.flow.go()

    with transaction.atomic():
        ran = run_available()
        within = stored(ticket)
        transaction.set_rollback(True)

    row = message(ticket)
    assert (ran, within, stored(ticket)) == (1, "done", "busy")
    assert (row.is_completed, row.attempts_started, row.claim_token) == (False, 0, None)


@pytest.mark.usefixtures("only_postgres")
def test_claim_does_not_make_the_callers_commit_a_weak_one(flow: Flow, ticket: Ticket) -> None:
    """
    Only a claim's own commit may skip the disk: a caller's transaction keeps its durability.
    """
    flow(work())
    ticket.flow.go()

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = on")
        run_available()
        cursor.execute("SHOW synchronous_commit")
        (setting,) = cursor.fetchone()

    assert setting == "on"


def test_retry_pending_runs_everything_that_is_due(flow: Flow) -> None:
    """
    retry_pending() runs every due row of all queues and counts them, failing ones included.
    """
    flow(work(queue="a"), work(lambda instance, **kw: 1 / 0, action="fail", queue="b"))
    tickets = [new_ticket() for _ in range(3)]
    tickets[0].flow.go()
    tickets[1].flow.fail()
    tickets[2].flow.go(delay=60)

    assert [retry_pending(), retry_pending()] == [2, 0]
    assert [stored(ticket) for ticket in tickets] == ["done", "busy", "busy"]


def test_rows_of_actions_and_transitions_share_the_order(flow: Flow) -> None:
    """
    A BackgroundAction's row takes its turn like any other.
    """
    ran: list[Any] = []
    flow(work(noting_keys(ran)), act(noting_keys(ran), priority=-1))
    first, second = new_ticket(), new_ticket()
    first.flow.go()
    second.flow.act()

    run_available()

    assert ran == [second.pk, first.pk]
