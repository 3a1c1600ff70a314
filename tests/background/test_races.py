"""
Prove what threads with connections of their own can't do to each other: enqueue twice, claim twice, lose a row.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from django.db import connection, transaction

from django_logic import Transition
from django_logic.background import attempt, claim, run_available
from django_logic.background.claim import TokenLost
from django_logic.background.lanes import lanes_of
from django_logic.background.models import TransitionMessage
from django_logic.exceptions import (
    AlreadyInProgress,
    InvalidTransition,
    TransitionNotAllowed,
    TransitionTemporarilyUnavailable,
)
from django_logic.models import StatusChange
from tests.app.hooked import fresh, moves, stored
from tests.app.models import Product, Ticket
from tests.background.flows import Flow, act, make_due, message, messages, new_ticket, run_out, work
from tests.races.together import PATIENCE, Worker, needs_visible_waits, together

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("is_action", [False, True])
@pytest.mark.parametrize("lock", ["row", "nowait", "cache"])
def test_one_of_two_enqueues_wins(
    flow: Flow, ticket: Ticket, lock: str, is_action: bool, settings: Any, tmp_path: Any
) -> None:
    """
    Calls released together leave one row and one busy move; everybody else is refused as busy.
    """
    backend = "django.core.cache.backends.filebased.FileBasedCache"
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": str(tmp_path)}}
    flow(act(action="go", lock=lock) if is_action else work(sources=["new", "busy"], lock=lock))

    for _ in range(3):
        target = new_ticket()
        outcomes = together([lambda target=target: fresh(target).flow.go()] * 4)

        winners = [outcome for outcome in outcomes if outcome.value is True]
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        assert (len(winners), len(errors)) == (1, 3)
        assert all(isinstance(error, TransitionTemporarilyUnavailable) for error in errors)
        assert len(messages(target)) == 1
        assert moves(target, "flow") == ([] if is_action else [("new", "busy")])


def test_enqueue_and_sync_move_exclude_each_other(flow: Flow) -> None:
    """
    A background call and a synchronous move of one object released together: one of them, never both.
    """
    flow(act(action="go"), Transition("stop", ["new"], "stopped"))

    for _ in range(5):
        ticket = new_ticket()
        go, stop = together([lambda t=ticket: fresh(t).flow.go(), lambda t=ticket: fresh(t).flow.stop()])

        if go.value is True:
            assert isinstance(stop.error, TransitionTemporarilyUnavailable)
            assert (stored(ticket), len(messages(ticket))) == ("new", 1)
        else:
            assert isinstance(go.error, (InvalidTransition, TransitionTemporarilyUnavailable))
            assert (stop.value, stored(ticket), messages(ticket)) == (True, "stopped", [])


def test_call_that_waited_for_another_is_judged_afresh(flow: Flow, ticket: Ticket) -> None:
    """
    A call that waits behind an uncommitted one is refused once that is committed, and passes when it is rolled back.
    """
    needs_visible_waits()
    flow(work())
    other = new_ticket()

    with transaction.atomic():
        ticket.flow.go()
        waiting = Worker(lambda: fresh(ticket).flow.go())
        waiting.until_it_waits()
    with transaction.atomic():
        other.flow.go()
        lucky = Worker(lambda: fresh(other).flow.go())
        lucky.until_it_waits()
        transaction.set_rollback(True)

    assert isinstance(waiting.join().error, AlreadyInProgress)
    assert lucky.result() is True
    assert (len(messages(ticket)), len(messages(other))) == (1, 1)


def test_call_that_waited_while_the_work_ended_is_a_duplicate(flow: Flow, ticket: Ticket) -> None:
    """
    The second enqueue is judged on the state after the first run: no second run of work that is done.
    """
    needs_visible_waits()
    ran: list[int] = []
    flow(work(lambda instance, **kw: ran.append(1), in_progress_state=None))

    with transaction.atomic():
        ticket.flow.go()
        second = Worker(lambda: fresh(ticket).flow.go())
        second.until_it_waits()
        attempt.run(message(ticket).pk)

    assert second.result() is False
    assert (ran, len(messages(ticket)), stored(ticket)) == ([1], 1, "done")


def test_claimers_never_get_the_same_row(flow: Flow) -> None:
    """
    Four claimers released together share out forty rows: each row goes to one of them, and all are taken.
    """
    if not connection.features.has_select_for_update_skip_locked:
        pytest.skip("this database has one claimer at a time")
    flow(work(queue="a"), work(action="urgent", queue="b", priority=-1))
    for number in range(40):
        getattr(new_ticket().flow, "urgent" if number % 2 else "go")()

    def claim_all() -> list[int]:
        lanes, taken = lanes_of("default", None), []
        while len(taken) < 40:
            found = claim.take_next("default", lanes)
            if found is None:
                return taken
            taken.append(found.pk)
        return taken

    outcomes = together([claim_all] * 4)

    taken = [pk for outcome in outcomes for pk in outcome.value]
    assert sorted(taken) == list(TransitionMessage.objects.order_by("pk").values_list("pk", flat=True))
    assert set(TransitionMessage.objects.values_list("attempts_started", "errors_count")) == {(1, 0)}
    assert TransitionMessage.objects.values("claim_token").distinct().count() == 40


def test_runners_side_by_side_do_each_piece_of_work_once(flow: Flow) -> None:
    """
    run_available() in several threads: every row runs once, and every effect and callback happens once.
    """
    lock = threading.Lock()
    told: Counter[int] = Counter()

    def effect(instance: Any, **keywords: Any) -> None:
        Product.objects.create(name=str(instance.pk))

    def callback(instance: Any, **keywords: Any) -> None:
        with lock:
            told[instance.pk] += 1

    flow(work(effect, callbacks=[callback, callback]))
    tickets = [new_ticket() for _ in range(15)]
    for ticket in tickets:
        ticket.flow.go()

    outcomes = together([run_available] * 3)
    run_out()

    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert sorted(Product.objects.values_list("name", flat=True)) == sorted(str(ticket.pk) for ticket in tickets)
    assert told == {ticket.pk: 2 for ticket in tickets}
    assert set(TransitionMessage.objects.values_list("outcome", "attempts_started")) == {("succeeded", 1)}
    assert StatusChange.objects.filter(to_state="done").count() == 15


def test_attempt_run_by_two_at_once_runs_once(flow: Flow, ticket: Ticket) -> None:
    """
    Two that want the same row: one runs it, the other gets None or loses its claim; the effect is committed once.
    """
    flow(work(lambda instance, **kw: Product.objects.create(name="effect")))
    ticket.flow.go()
    pk = message(ticket).pk

    outcomes = together([lambda: attempt.run(pk)] * 4)
    make_due()
    run_out()

    ends = [outcome.value and str(outcome.value.ended) for outcome in outcomes]
    assert [outcome.error for outcome in outcomes] == [None] * 4
    assert ends.count("succeeded") <= 1
    assert set(ends) <= {None, "succeeded", "lost"}
    assert (message(ticket).outcome, Product.objects.count()) == ("succeeded", 1)
    assert moves(ticket, "flow") == [("new", "busy"), ("busy", "done")]


def test_old_claim_can_not_hold_a_row_that_was_claimed_again(flow: Flow, ticket: Ticket) -> None:
    """
    A live claim is nobody else's to take; once its lease ended, the token fences the first attempt off.
    """
    flow(work())
    ticket.flow.go()
    first = claim.take("default", message(ticket).pk)
    too_early = claim.take("default", message(ticket).pk)
    make_due()
    second = claim.take("default", message(ticket).pk)
    assert first is not None
    assert too_early is None
    assert second is not None

    lost = attempt.run_claimed(first, "default")
    with pytest.raises(TokenLost), transaction.atomic():
        claim.hold(first, "default")
    done = attempt.run_claimed(second, "default")

    assert (str(lost.ended), str(done.ended)) == ("lost", "succeeded")
    assert moves(ticket, "flow") == [("new", "busy"), ("busy", "done")]


def test_rows_of_one_object_that_follow_never_run_side_by_side(flow: Flow, ticket: Ticket) -> None:
    """
    While one callback of an object runs, no other claimer gets the next one.
    """
    if not connection.features.has_select_for_update_skip_locked:
        pytest.skip("this database has one writer at a time")
    inside, found = threading.Event(), []

    def first(instance: Any, **keywords: Any) -> None:
        inside.set()
        found.append(Worker(run_available).result())

    flow(work(callbacks=[first, lambda instance, **kw: found.append("second")]))
    ticket.flow.go()
    run_available()

    assert inside.wait(PATIENCE)
    assert found == [0, "second"]


def test_many_objects_in_many_threads_keep_history_unbroken(flow: Flow) -> None:
    """
    Callers and runners at once: every accepted call has one outcome, every chain leads from state to state.
    """
    flow(
        work(sources=["new", "done"]),
        Transition("reset", ["done"], "new"),
    )
    tickets = [new_ticket() for _ in range(4)]
    accepted: list[Any] = []

    def call() -> None:
        for _ in range(6):
            for ticket in tickets:
                for action in ("go", "reset"):
                    try:
                        if getattr(fresh(ticket).flow, action)() and action == "go":
                            accepted.append(ticket.pk)
                    except TransitionNotAllowed:
                        pass

    outcomes = together([call, call, lambda: [run_available() for _ in range(10)]])
    run_out()

    assert [outcome.error for outcome in outcomes] == [None] * 3
    rows = Counter(TransitionMessage.objects.values_list("instance_id", flat=True))
    assert rows == Counter(str(pk) for pk in accepted)
    assert set(TransitionMessage.objects.values_list("outcome", flat=True)) == {"succeeded"}
    for ticket in tickets:
        chain = moves(ticket, "flow")
        assert [start for start, _end in chain] == ["new", *(end for _start, end in chain[:-1])]
        assert stored(ticket) == chain[-1][1]
        assert list(ticket.flow.history.values_list("sequence", flat=True)) == list(range(1, len(chain) + 1))
