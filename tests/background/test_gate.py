"""
Prove what open work keeps out, what listings say meanwhile, and how a row that nobody serves is told apart.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_logic import Action, ProcessManager, Transition
from django_logic.background import attempt, in_flight, run_available, sync_execution
from django_logic.background.models import TransitionMessage
from django_logic.bulk import bulk_transition
from django_logic.exceptions import (
    AlreadyInProgress,
    TransitionNotAllowed,
    TransitionTemporarilyUnavailable,
)
from tests.app.hooked import Boom, Diary, fresh, moves, stored
from tests.app.models import Parcel, Ticket
from tests.background.flows import Flow, act, age, message, messages, new_ticket, run_out, work
from tests.races.test_isolation import read_repeatably
from tests.races.together import Worker, execute

pytestmark = pytest.mark.django_db(transaction=True)

#: Later than this the row of a project with the built-in settings is stranded.
STRANDED = timedelta(minutes=15)


def test_listing_is_empty_while_work_is_open(flow: Flow, ticket: Ticket) -> None:
    """
    While a row is open get_available_actions() lists nothing of the process but actions that take no lock.
    """
    flow(
        work(sources=["new", "done"]),
        Transition("stop", ["busy", "new"], "stopped"),
        Action("look", "*"),
        Action("track", "*", lock="none"),
    )
    before = ticket.flow.get_available_actions()

    ticket.flow.go()
    during = (
        ticket.flow.get_available_actions(),
        [entry.action_name for entry in ticket.flow.get_available_transitions()],
    )
    run_available()
    after = fresh(ticket).flow.get_available_actions()

    assert before == ["go", "look", "stop", "track"]
    assert during == (["track"], ["track"])
    assert after == ["go", "look", "track"]


def test_listing_of_a_page_tells_busy_objects_in_a_constant_number_of_queries(flow: Flow) -> None:
    """
    ProcessManager.available_actions() asks once for the open rows of a whole page.
    """
    flow(work(), Transition("stop", ["busy", "new"], "stopped"), Action("track", "*", lock="none"))
    tickets = [new_ticket() for _ in range(5)]
    tickets[1].flow.go()
    tickets[3].flow.go()

    with CaptureQueriesContext(connection) as few:
        listed = ProcessManager.available_actions(Ticket.objects.order_by("pk"), process_name="flow")
    for _ in range(20):
        new_ticket().flow.go()
    with CaptureQueriesContext(connection) as many:
        ProcessManager.available_actions(Ticket.objects.all(), process_name="flow")

    free, busy = ["go", "stop", "track"], ["track"]
    assert listed == dict(zip((ticket.pk for ticket in tickets), [free, busy, free, busy, free], strict=True))
    assert len(few) == len(many) == 2


def test_why_not_names_the_open_row(flow: Flow, ticket: Ticket) -> None:
    """
    why_not() gives one reason with the row's id and transition, whatever else would speak against the action.
    """
    flow(work(), Transition("stop", ["nowhere"], "stopped"), Action("track", "*", lock="none"))
    ticket.flow.go()

    for action in ("go", "stop"):
        (reason,) = ticket.flow.why_not(action)
        assert reason.code == "background_in_flight"
        assert (reason.params["message_id"], reason.params["transition"]) == (message(ticket).pk, "go")
    assert ticket.flow.why_not(target="stopped")[0].code == "background_in_flight"
    assert ticket.flow.why_not("track") == []


def test_in_flight_is_true_while_work_is_open(flow: Flow, ticket: Ticket) -> None:
    """
    in_flight() is for answers: True while a row waits or runs, False before, after, and for another process.
    """
    inside: list[bool] = []
    flow(work(lambda instance, **kw: inside.append(in_flight(instance, "flow"))))

    before = in_flight(ticket, "flow")
    ticket.flow.go()
    during = (in_flight(ticket, "flow"), in_flight(ticket))
    run_available()

    assert (before, during, inside, in_flight(ticket, "flow")) == (False, (True, False), [True], False)


def test_rows_that_follow_keep_nobody_out(flow: Flow, diary: Diary, ticket: Ticket) -> None:
    """
    Waiting, failing and spent callbacks leave the object free.
    """
    flow(work(callbacks=[diary.hook("mail", Boom())], max_errors=1), Transition("file", ["done"], "filed"))
    ticket.flow.go()
    attempt.run(message(ticket).pk)
    waiting = (in_flight(ticket, "flow"), fresh(ticket).flow.get_available_actions())
    run_out()

    assert waiting == (False, ["file"])
    assert fresh(ticket).flow.file() is True


def strand(ticket: Ticket, by: timedelta = STRANDED + timedelta(seconds=5)) -> None:
    """
    Let a row have been due for so long.
    """
    age(message(ticket), by, "run_at")


def test_row_that_nobody_serves_is_refused_as_stranded(flow: Flow, ticket: Ticket) -> None:
    """
    An overdue row gives a plain refusal that names the row, a 409: waiting will not help.
    """
    flow(work(), Transition("stop", ["busy"], "stopped"))
    ticket.flow.go()
    strand(ticket)

    found = []
    for action in ("go", "stop"):
        with pytest.raises(TransitionNotAllowed) as refused:
            getattr(ticket.flow, action)()
        found.append((type(refused.value), refused.value.reason, refused.value.http_status))
        assert str(message(ticket).pk) in str(refused.value)

    assert found == [(TransitionNotAllowed, "background_stranded", 409)] * 2
    assert not in_flight(ticket, "flow")
    assert [reason.code for reason in ticket.flow.why_not("stop")] == ["background_stranded"]
    assert ticket.flow.get_available_actions() == []


def test_row_is_not_stranded_before_its_time(flow: Flow, ticket: Ticket, settings: Any) -> None:
    """
    Stranded means late by more than every retry together, and never by less than a quarter of an hour.
    """
    flow(work())
    ticket.flow.go()
    codes = []
    for minutes, retry in ((14, 0), (16, 0), (16, 2), (16, 3), (19, 3)):
        settings.DJANGO_LOGIC = {"TRANSITION_MESSAGE_RETRY_MINUTES": retry}
        strand(ticket, timedelta(minutes=minutes))
        codes.append(ticket.flow.why_not("go")[0].code.removeprefix("background_"))

    assert codes == ["in_flight", "stranded", "stranded", "in_flight", "stranded"]


def test_row_that_waits_for_its_time_is_not_stranded(flow: Flow, ticket: Ticket) -> None:
    """
    A delayed row, or one in its retry pause, is open however old it is.
    """
    flow(work(), work(lambda instance, **kw: 1 / 0, action="fail"))
    other = new_ticket()
    ticket.flow.go(delay=86_400)
    other.flow.fail()
    run_available()
    for found in (ticket, other):
        age(message(found), timedelta(days=3), "created", "modified")

    assert [found.flow.why_not("go")[0].code for found in (ticket, other)] == ["background_in_flight"] * 2


def test_row_that_runs_for_long_is_not_stranded(flow: Flow, ticket: Ticket) -> None:
    """
    While an attempt holds the row it is in flight, however late it is by the clock.
    """
    if not connection.features.has_select_for_update_skip_locked:
        pytest.skip("this database can't tell which rows are held")
    flow(work())
    ticket.flow.go()
    strand(ticket)

    with transaction.atomic():
        TransitionMessage.objects.select_for_update().get(pk=message(ticket).pk)
        held = Worker(lambda: fresh(ticket).flow.why_not("go")[0].code).result()

    assert held == "background_in_flight"
    assert ticket.flow.why_not("go")[0].code == "background_stranded"


def test_stranded_row_still_runs_when_somebody_comes(flow: Flow, ticket: Ticket) -> None:
    """
    Stranded is a word for people: the row itself runs as soon as a worker serves it.
    """
    flow(work())
    ticket.flow.go()
    strand(ticket)

    assert (run_available(), stored(ticket)) == (1, "done")


def test_bulk_enqueues_every_object_that_may(flow: Flow, clerk: Any) -> None:
    """
    bulk_transition() of a background action saves a row for each object, and counts the others by why not.
    """
    flow(work())
    tickets = [new_ticket() for _ in range(4)]
    elsewhere, there = new_ticket(state="elsewhere"), new_ticket(state="done")
    tickets[2].flow.go()

    result = bulk_transition(Ticket.objects.all(), "go", process_name="flow", user=clerk, reason="night run", lines=[1])

    rows = TransitionMessage.objects.filter(reason="night run").order_by("pk")
    assert (result.moved, result.duplicates, result.errors) == (3, 1, {})
    assert result.refused == {"background_in_flight": [tickets[2].pk], "source_state": [elsewhere.pk]}
    assert [row.instance_id for row in rows] == [str(tickets[place].pk) for place in (0, 1, 3)]
    assert {(row.user_id, row.actor_label, tuple(row.kwargs["lines"])) for row in rows} == {
        (str(clerk.pk), "clerk", (1,))
    }
    assert len({row.transition_id for row in rows}) == 3
    assert len({row.root_id for row in rows}) == 1
    assert run_available() == 4
    assert [stored(ticket) for ticket in (*tickets, elsewhere, there)] == ["done"] * 4 + ["elsewhere", "done"]


def test_bulk_enqueues_set_by_set(flow: Flow) -> None:
    """
    Background transitions without guards are enqueued set-wise: the number of queries does not grow with the objects.
    """
    flow(work())
    for _ in range(3):
        new_ticket()
    with CaptureQueriesContext(connection) as few:
        bulk_transition(Ticket.objects.all(), "go", process_name="flow")
    for _ in range(30):
        new_ticket()

    with CaptureQueriesContext(connection) as many:
        result = bulk_transition(Ticket.objects.filter(state="new"), "go", process_name="flow")

    batches = 0 if connection.vendor == "postgresql" else 3  # a statement takes only so many values elsewhere
    assert result.moved == 30
    assert len(many) <= len(few) + batches


def test_bulk_judges_each_object_where_guards_ask(flow: Flow, clerk: Any) -> None:
    """
    With conditions or permissions each object is judged by itself; those that pass get their rows.
    """
    flow(
        work(
            conditions=[lambda instance, **kw: instance.note == "ready"],
            permissions=[lambda instance, user, **kw: True],
        )
    )
    ready, not_ready = new_ticket(note="ready"), new_ticket()

    result = bulk_transition(Ticket.objects.all(), "go", process_name="flow", user=clerk)

    assert (result.moved, result.refused) == (1, {"condition": [not_ready.pk]})
    assert (stored(ready), stored(not_ready)) == ("busy", "new")
    assert run_available() == 1


def test_bulk_in_sync_mode_does_the_work(flow: Flow, diary: Diary) -> None:
    """
    In sync mode a bulk call returns with every object done; a failing one is told by its key.
    """

    def effect(instance: Any, **keywords: Any) -> None:
        if instance.note == "bad":
            raise Boom

    flow(work(effect, callbacks=[diary.hook("after")]))
    good, bad = new_ticket(), new_ticket(note="bad")

    with sync_execution():
        result = bulk_transition(Ticket.objects.all(), "go", process_name="flow")

    assert (result.moved, list(result.errors)) == (1, [bad.pk])
    assert (stored(good), stored(bad), diary.names) == ("done", "busy", ["after"])


def test_bulk_of_actions_leaves_states_alone(flow: Flow) -> None:
    """
    A set of BackgroundActions gets rows and keeps its states; what was busy already is refused.
    """
    flow(act(), work())
    first, second = new_ticket(), new_ticket()
    second.flow.go(delay=60)

    result = bulk_transition(Ticket.objects.all(), "act", process_name="flow", actor="night run")

    assert (result.moved, result.refused) == (1, {"background_in_flight": [second.pk]})
    assert (stored(first), moves(first, "flow"), message(first).actor_label) == ("new", [], "night run")


def test_bulk_that_is_rolled_back_leaves_no_rows(flow: Flow) -> None:
    """
    A bulk call lives and dies with the caller's transaction.
    """
    flow(work())
    tickets = [new_ticket() for _ in range(3)]

    with transaction.atomic():
        result = bulk_transition(Ticket.objects.all(), "go", process_name="flow")
        transaction.set_rollback(True)

    assert result.moved == 3
    assert not TransitionMessage.objects.exists()
    assert [stored(ticket) for ticket in tickets] == ["new"] * 3


def test_bulk_enqueue_with_a_delay(flow: Flow) -> None:
    """
    delay= of a bulk call holds for each row.
    """
    flow(work())
    tickets = [new_ticket() for _ in range(2)]

    result = bulk_transition(Ticket.objects.all(), "go", process_name="flow", delay=3600)

    assert (result.moved, run_available()) == (2, 0)
    assert all(message(ticket).run_at - message(ticket).created > timedelta(minutes=59) for ticket in tickets)


def test_bulk_move_in_a_process_with_background_work_passes_the_gate(flow: Flow) -> None:
    """
    A synchronous bulk move leaves objects alone whose work is open.
    """
    flow(work(), Transition("stop", ["new", "busy"], "stopped"))
    busy, free = new_ticket(), new_ticket()
    busy.flow.go()

    result = bulk_transition(Ticket.objects.all(), "stop", process_name="flow")

    assert (result.moved, result.refused) == (1, {"background_in_flight": [busy.pk]})
    assert (stored(busy), stored(free)) == ("busy", "stopped")


def test_gate_is_asked_once_before_the_lock(flow: Flow, ticket: Ticket) -> None:
    """
    A caller is refused at once while an attempt holds its row and edits the object; it does not wait for the attempt.
    """
    if not connection.features.has_select_for_update:
        pytest.skip("this database has one writer at a time")
    found: list[Any] = []

    def edit_and_look(instance: Any, **keywords: Any) -> None:
        Ticket.objects.filter(pk=instance.pk).update(note="locked by the attempt's transaction")
        callers = [Worker(getattr(fresh(ticket).flow, action)) for action in ("go", "stop")]
        found.extend(type(caller.join().error) for caller in callers)

    flow(work(edit_and_look), Transition("stop", ["busy"], "stopped"))
    ticket.flow.go()
    run_available()

    assert found == [AlreadyInProgress, TransitionTemporarilyUnavailable]
    assert stored(ticket) == "done"


def test_old_snapshot_of_the_caller_does_not_hide_an_open_row(flow: Flow, ticket: Ticket) -> None:
    """
    MySQL's REPEATABLE READ shows a caller's transaction no row that was saved since: the gate sees it all the same.
    """
    if connection.vendor != "mysql":
        pytest.skip("elsewhere an old snapshot fails, or there is none")
    flow(act(), Transition("stop", ["new"], "stopped"))

    def call() -> list[Any]:
        read_repeatably()
        with transaction.atomic():
            copy = fresh(ticket)
            assert TransitionMessage.objects.count() == 0
            assert Worker(lambda: fresh(ticket).flow.act()).result() is True
            found = []
            for action in ("stop", "act"):
                with pytest.raises(TransitionTemporarilyUnavailable) as refused:
                    getattr(copy.flow, action)()
                found.append(refused.value.reason)
            return found

    assert Worker(call).result() == ["background_in_flight"] * 2
    assert (len(messages(ticket)), stored(ticket)) == (1, "new")


def test_old_snapshot_of_the_caller_does_not_show_a_row_that_has_ended(flow: Flow, ticket: Ticket) -> None:
    """
    MySQL's REPEATABLE READ still shows a row as open that has ended since: the gate knows better.
    """
    if connection.vendor != "mysql":
        pytest.skip("elsewhere an old snapshot fails, or there is none")
    flow(act(), Transition("stop", ["new"], "stopped"))
    ticket.flow.act()

    def call() -> Any:
        read_repeatably()
        with transaction.atomic():
            copy = fresh(ticket)
            assert TransitionMessage.objects.open().count() == 1
            assert Worker(run_available).result() == 1
            return copy.flow.stop()

    assert Worker(call).result() is True
    assert moves(ticket, "flow") == [("new", "stopped")]


@pytest.mark.usefixtures("only_postgres")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_old_snapshot_is_a_temporary_refusal_on_postgresql(flow: Flow, ticket: Ticket, level: str) -> None:
    """
    A caller's transaction whose snapshot is older than the busy state can't judge: temporary, no second row.
    """
    flow(work(), Transition("stop", ["new"], "stopped"))

    def call() -> Any:
        execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")
        with transaction.atomic():
            copy = fresh(ticket)
            assert Worker(lambda: fresh(ticket).flow.go()).result() is True
            return copy.flow.stop()

    outcome = Worker(call).join()

    assert isinstance(outcome.error, TransitionTemporarilyUnavailable)
    assert (len(messages(ticket)), stored(ticket)) == (1, "busy")


def test_process_of_another_name_is_not_asked_for(flow: Flow) -> None:
    """
    Rows of one process say nothing about another on the same object.
    """
    parcel = Parcel.objects.create()
    flow(work(), model=Parcel, field="parcel_status")
    flow(work(), Transition("pay", ["new"], "paid"), model=Parcel, field="payment_status", process_name="cash")
    parcel.flow.go()

    assert parcel.cash.why_not("pay") == []
    assert parcel.cash.get_available_actions() == ["go", "pay"]
    assert parcel.cash.pay() is True
