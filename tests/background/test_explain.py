"""
Prove that every open row gets the true reason why it does not move, and the command that helps.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_logic.background import Backoff, PermanentFailure, Snooze, claim, run_available
from django_logic.background.cancel import cancel_message
from django_logic.background.explain import Code, explain, rows_with, tally
from django_logic.background.metrics import snapshot
from django_logic.background.models import Cancellation, TransitionMessage
from django_logic.clock import FromNow
from tests.app.hooked import Boom
from tests.app.models import Ticket
from tests.background.flows import AT_ONCE, Flow, age, make_due, message, messages, new_ticket, rename, run_out, work
from tests.background.onlookers import codes, counted, enter_worker, told

pytestmark = pytest.mark.django_db(transaction=True)

IN_TEN_MINUTES = Backoff(first=600, factor=1, limit=600, jitter=0)
QUEUE = "parcels"


def failing(instance: Any, **keywords: Any) -> None:
    """
    Fail.
    """
    raise Boom("no\n  route")


def snoozing(instance: Any, **keywords: Any) -> None:
    """
    Ask for another time.
    """
    raise Snooze(90)


def fine(instance: Any, **keywords: Any) -> None:
    """
    Do nothing.
    """


def giving_up(instance: Any, **keywords: Any) -> None:
    """
    Fail for good.
    """
    raise PermanentFailure("never")


def go(flow: Flow, *side_effects: Any, delay: float = 0, **options: Any) -> Ticket:
    """
    Declare background work, and make the call for a new object.
    """
    flow(work(*side_effects, queue=QUEUE, **options))
    ticket = new_ticket()
    ticket.flow.go(delay=delay)
    return ticket


def test_due_row_without_a_worker_names_the_queue_and_the_command_that_starts_one(flow: Flow) -> None:
    """
    Where no worker serves the queue, that is the reason, and the next command starts one for this queue.
    """
    ticket = go(flow)
    enter_worker("others")

    found = told()

    assert (found.code, found.next_command) == ("no_worker_for_queue", "manage.py dl_worker --queues parcels")
    assert "no worker of 'parcels' was seen within 30 s" in found.detail
    assert (found.model, found.instance_id, found.process) == ("app.Ticket", str(ticket.pk), "flow")
    assert (found.transition, found.queue, found.errors_count, found.attempts_started) == ("go", QUEUE, 0, 0)
    assert 0 <= found.age_seconds < 30


@pytest.mark.parametrize(("seen", "code"), [(29, Code.CLAIMABLE_NOW), (31, Code.NO_WORKER_FOR_QUEUE)])
def test_worker_counts_for_thirty_seconds_after_it_was_seen(flow: Flow, seen: float, code: Code) -> None:
    """
    A worker serves its queues until it has not been seen for 30 seconds of the database's clock.
    """
    go(flow)
    enter_worker(QUEUE, seen=seen)

    assert codes() == [code]


def test_row_that_is_next_is_claimable_and_names_who_serves_it(flow: Flow) -> None:
    """
    The first row that is due in a served queue waits for nobody.
    """
    go(flow)
    enter_worker("others", QUEUE, name="left")

    found = told()

    assert found.code is Code.CLAIMABLE_NOW
    assert "the next one for worker left" in found.detail
    assert found.next_command == f"manage.py dl_transitions --send {found.id}"


def test_rows_wait_behind_those_that_a_worker_claims_first(flow: Flow) -> None:
    """
    A row behind others says how many come first: smaller priority, then the earlier due time, then the older row.
    """
    flow(work(queue=QUEUE), work(action="urgent", queue=QUEUE, priority=-5), work(action="aside", queue="aside"))
    enter_worker(QUEUE, "aside")
    for action in ("go", "go", "aside", "urgent"):
        getattr(new_ticket().flow, action)()

    first, second, aside, urgent = explain()

    assert [entry.code for entry in (first, second, aside, urgent)] == [
        *(Code.WAITING_BEHIND, Code.WAITING_BEHIND, Code.CLAIMABLE_NOW, Code.CLAIMABLE_NOW)
    ]
    assert (first.detail, second.detail) == ("1 row comes first, for worker w1", "2 rows come first, for worker w1")
    assert first.next_command == "manage.py dl_worker --queues parcels"


def test_rows_that_wait_for_their_time_stand_in_nobodys_way(flow: Flow) -> None:
    """
    Paused and scheduled rows are not counted among those that come first.
    """
    flow(work(queue=QUEUE))
    enter_worker(QUEUE)
    new_ticket().flow.go(delay=600)
    new_ticket().flow.go()

    assert codes() == [Code.SCHEDULED_FOR, Code.CLAIMABLE_NOW]


def test_failed_attempt_says_until_when_it_pauses_and_what_went_wrong(flow: Flow) -> None:
    """
    A row in its pause says until when, after which error of how many, and quotes the error on one line.
    """
    go(flow, failing, retry=IN_TEN_MINUTES, max_errors=3)
    run_available()
    enter_worker(QUEUE)

    found = told()

    assert found.code is Code.RETRY_PAUSE_UNTIL
    assert found.detail.endswith("after error 1 of 3: Boom: no route")
    assert "(in 9 min" in found.detail or "(in 10 min" in found.detail
    assert found.next_command == f"manage.py dl_transitions --send {found.id}"


@pytest.mark.parametrize("hooks", [(), (snoozing,)])
def test_row_that_is_not_due_says_for_when_it_is_scheduled(flow: Flow, hooks: Any) -> None:
    """
    A delayed row, and one that a hook snoozed, are scheduled and not paused after an error.
    """
    go(flow, *hooks, delay=0 if hooks else 90)
    run_available()

    found = told()

    assert found.code is Code.SCHEDULED_FOR
    assert "(in 1 min 2" in found.detail or "(in 1 min 30 s)" in found.detail
    assert ("snoozed" in found.detail) is bool(hooks)


def test_snooze_after_an_error_is_a_schedule_and_no_pause(flow: Flow) -> None:
    """
    The last thing that happened counts: a hook that failed once and then asked for another time.
    """
    turns = iter([failing, snoozing])
    go(flow, lambda instance, **keywords: next(turns)(instance), retry=AT_ONCE)
    run_available()
    run_available()

    assert (told().code, told().errors_count) == (Code.SCHEDULED_FOR, 1)


def test_claimed_row_says_by_whom_and_until_when(flow: Flow) -> None:
    """
    Between the claim and the attempt's lock, and while ``prepare`` hooks run, the lease says that somebody is at it.
    """
    go(flow)
    claim.take("default", message_id(), worker="left")

    found = told()

    assert found.code is Code.LEASE_LIVE_UNTIL
    assert "by worker left" in found.detail
    assert found.next_command == "manage.py dl_transitions --queues parcels --watch"


def message_id() -> int:
    """
    Return the key of the only row.
    """
    return TransitionMessage.objects.get().pk


def test_row_whose_attempt_died_is_claimable_and_says_that_it_left_no_record(flow: Flow) -> None:
    """
    Once the lease is over and nobody holds the row, the next claim takes it; what happened is said.
    """
    go(flow, max_errors=2)
    claim.take("default", message_id())
    make_due()
    enter_worker(QUEUE)

    found = told()

    assert (found.code, "its last attempt has left no record" in found.detail) == (Code.CLAIMABLE_NOW, True)


def test_row_that_spent_its_last_attempt_without_a_word_is_spent(flow: Flow) -> None:
    """
    A transition whose last attempt died waits for upkeep, whoever serves its queue.
    """
    go(flow, max_errors=1)
    claim.take("default", message_id())
    make_due()
    enter_worker(QUEUE)

    found = told()

    assert found.code is Code.SPENT_ALL_ATTEMPTS
    assert found.detail.startswith("1 of 1 attempts spent; a worker's upkeep")
    assert found.next_command == f"manage.py dl_transitions --retry {found.id}"


@pytest.mark.parametrize("hook", [failing, giving_up])
def test_spent_callback_waits_for_an_operator_and_stops_nobody(flow: Flow, hook: Any) -> None:
    """
    A durable row whose attempts are spent, or that failed for good, is named with its hook; those behind it run.
    """
    go(flow, callbacks=[hook, fine], max_errors=1)
    run_out()

    found = told()

    assert found.code is Code.SPENT_ALL_ATTEMPTS
    assert found.detail.startswith(f"callback {hook.__name__}: 1 of 1 attempts spent: ")
    assert found.detail.endswith("; it waits for you")


def test_callback_waits_behind_the_one_before_it(flow: Flow) -> None:
    """
    A durable row behind a failed one of its object names that row, and the command that sends it.
    """
    ticket = go(flow, callbacks=[failing, fine], max_errors=3, retry=IN_TEN_MINUTES)
    run_available()
    failed, behind = messages(ticket, "callback")
    enter_worker(QUEUE)

    found = told(behind.pk)

    assert found.code is Code.WAITING_BEHIND
    assert found.detail == f"callback fine: row {failed.pk} of the same object comes first"
    assert found.next_command == f"manage.py dl_transitions --send {failed.pk}"
    assert told(failed.pk).code is Code.RETRY_PAUSE_UNTIL


def test_transition_that_this_code_does_not_know_is_named(flow: Flow) -> None:
    """
    A row whose process this process can't import says so, ahead of pauses and missing workers.
    """
    process_class = flow(work(queue=QUEUE))
    new_ticket().flow.go(delay=60)
    name = process_class.__name__
    rename(process_class, f"{name}Renamed")

    found = told()

    rename(process_class, name)
    assert found.code is Code.UNKNOWN_TRANSITION
    assert name in found.detail
    assert found.next_command == f"manage.py dl_transitions --cancel {found.id}"


def test_callback_that_this_code_does_not_have_is_named(flow: Flow) -> None:
    """
    A durable row for a hook that was removed can't run here, and says which hook that is.
    """
    ticket = go(flow, callbacks=[failing], retry=IN_TEN_MINUTES)
    run_available()
    TransitionMessage.objects.filter(pk=message(ticket, "callback").pk).update(hook_name="removed")

    found = told()

    assert (found.code, "has no callback 'removed'" in found.detail) == (Code.UNKNOWN_TRANSITION, True)


def test_row_that_somebody_asked_to_cancel_says_so(flow: Flow) -> None:
    """
    A request to cancel that has not been met yet is part of the explanation.
    """
    go(flow)
    Cancellation.objects.create(message_id=message_id())

    assert told().detail.endswith("; asked to cancel")


def test_ended_rows_are_not_told(flow: Flow) -> None:
    """
    What has ended needs no explanation: succeeded, failed and cancelled rows are absent.
    """
    flow(work(), work(giving_up, action="fail"))
    for action in ("go", "fail", "go"):
        getattr(new_ticket().flow, action)()
    cancel_message(TransitionMessage.objects.order_by("-pk")[0].pk)

    run_out()

    assert (explain(), tally()) == ([], [])
    assert TransitionMessage.objects.count() == 3


def test_list_is_narrowed_by_queue_by_key_and_by_number(flow: Flow) -> None:
    """
    The oldest rows come first; queues and keys choose among them, a limit ends the list.
    """
    flow(work(queue="a"), work(action="other", queue="b"))
    for action in ("go", "other", "go"):
        getattr(new_ticket().flow, action)()
    first, second, third = (row.pk for row in TransitionMessage.objects.order_by("pk"))

    def listed(*arguments: Any, **keywords: Any) -> list[int]:
        return [entry.id for entry in explain(*arguments, **keywords)]

    assert listed() == [first, second, third]
    assert listed(["a"]) == [first, third]
    assert listed(["a", "b"], "default", [second, third]) == [second, third]
    assert listed(limit=2) == [first, second]
    assert listed(["nobody"]) == listed(pks=[]) == []


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
def test_rows_of_another_database_are_told_with_its_alias(flow: Flow) -> None:
    """
    Each database is asked for itself, and the commands name it.
    """
    flow(work(queue=QUEUE))
    Ticket.objects.using("other").create().flow.go()
    enter_worker(QUEUE)

    assert explain() == []
    assert told(using="other").next_command == "manage.py dl_worker --queues parcels --database other"


@pytest.fixture
def mixed(flow: Flow) -> Callable[[], None]:
    """
    Give what leaves rows for nearly every reason, in a queue that is served and in one that is not.
    """
    flow(
        work(queue=QUEUE),
        work(failing, action="fail", queue=QUEUE, retry=IN_TEN_MINUTES),
        work(action="dead", queue="dead"),
        work(action="told", queue=QUEUE, callbacks=[failing, fine], retry=IN_TEN_MINUTES),
        work(action="spend", queue=QUEUE, callbacks=[giving_up]),
        work(action="take", queue=QUEUE, max_errors=1),
    )
    enter_worker(QUEUE)

    def leave() -> None:
        TransitionMessage.objects.update(run_at=FromNow(3600))  # so that nothing from before runs now
        for action in ("fail", "told", "spend"):
            getattr(new_ticket().flow, action)()
        run_available()
        for action, delay in (("go", 0), ("go", 0), ("go", 0), ("go", 60), ("dead", 0), ("take", 0), ("take", 0)):
            getattr(new_ticket().flow, action)(delay=delay)
        leased, lost = TransitionMessage.objects.filter(transition_name="take").order_by("-pk")[:2]
        for row in (lost, leased):
            claim.take("default", row.pk)
        age(lost, timedelta(seconds=60), "run_at")
        unknown = new_ticket()
        unknown.flow.go()
        TransitionMessage.objects.filter(pk=message(unknown).pk).update(process_class="gone.Process")

    return leave


def test_counts_and_lists_agree_with_the_explanations(mixed: Callable[[], None]) -> None:
    """
    The count of each reason, the rows that have it, and the explanations row by row are the same thing.
    """
    mixed()

    found = explain()

    assert {entry.code for entry in found} >= set(Code) - {Code.RUNNING, Code.HELD_BY_SESSION, Code.HELD_SNAPSHOT}
    assert {(entry.queue, entry.code): entry.count for entry in tally()} == counted(found)
    for code in Code:
        assert sorted(row.pk for row in rows_with(code)) == [entry.id for entry in found if entry.code is code], code


def test_number_of_queries_does_not_grow_with_the_rows(mixed: Callable[[], None]) -> None:
    """
    Explaining twice as many rows of every kind costs as many queries.
    """
    costs = []
    for _ in range(2):
        mixed()
        with CaptureQueriesContext(connection) as queries:
            explain()
            tally()
        costs.append(len(queries))

    assert costs[0] == costs[1] <= 12


def test_explaining_locks_nothing_and_writes_nothing_on_postgresql(
    only_postgres: None, mixed: Callable[[], None]
) -> None:
    """
    A look changes nothing that a worker could feel: no statement locks or writes a row.
    """
    mixed()

    with CaptureQueriesContext(connection) as queries:
        explain()
        tally()
        list(rows_with(Code.CLAIMABLE_NOW))

    statements = " ".join(query["sql"].upper() for query in queries)
    assert not [word for word in ("FOR UPDATE", "FOR NO KEY", "UPDATE ", "INSERT ", "DELETE ") if word in statements]


def test_oldest_of_a_reason_is_measured_by_the_databases_clock(flow: Flow) -> None:
    """
    The age of a count is that of its oldest row.
    """
    flow(work(queue=QUEUE))
    old, _young = new_ticket(), new_ticket()
    for ticket in (old, _young):
        ticket.flow.go()
    age(message(old), timedelta(hours=2), "created")

    (found,) = tally()

    assert (found.code, found.count) == (Code.NO_WORKER_FOR_QUEUE, 2)
    assert 7200 <= found.oldest_seconds < 7260


def test_far_row_says_that_many_come_first(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Past a bound the rows that come first are not counted one by one, so that a deep backlog costs little.
    """
    monkeypatch.setattr("django_logic.background.explain.reading.MOST_AHEAD", 2)
    flow(work(queue=QUEUE))
    enter_worker(QUEUE)
    for _ in range(4):
        new_ticket().flow.go()
    TransitionMessage.objects.update(run_at=FromNow(-1))

    assert [entry.detail.partition(",")[0] for entry in explain()[1:]] == [
        *("1 row comes first", "2 or more rows come first", "2 or more rows come first")
    ]


def test_looks_work_where_the_driver_binds_on_the_server(bound_on_the_server: None, mixed: Callable[[], None]) -> None:
    """
    Every statement of a look can be prepared.
    """
    mixed()

    found = explain(["parcels", "dead"], limit=1000)

    assert {(entry.queue, entry.code): entry.count for entry in tally(["parcels", "dead"])} == counted(found)
    assert [row.pk for row in rows_with(Code.CLAIMABLE_NOW)] == [
        entry.id for entry in found if entry.code is Code.CLAIMABLE_NOW
    ]
    assert sum(snapshot().open_rows.values()) == len(found)
