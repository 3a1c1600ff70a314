"""
Prove what happens after the commit: callbacks, the next transition, and work that hooks scheduled themselves.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import pytest
from django.db import connection, transaction

from django_logic import Transition
from tests.app.hooked import Boom, fresh, hooked, moves, nothing, stored
from tests.app.models import Product, Ticket

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ticket() -> Ticket:
    """
    Give a saved object in its first state.
    """
    return Ticket.objects.create()


@pytest.mark.parametrize("effects", [[], [nothing]])
@pytest.mark.parametrize("in_transaction", [False, True])
def test_callbacks_run_in_order_and_before_the_next_transition(
    effects: list[Any], in_transaction: bool, ticket: Ticket
) -> None:
    """
    Side effects, commit, callbacks in their order, next transition with its own callbacks.
    """
    order: list[str] = []

    def note(name: str) -> Any:
        return lambda instance, **kwargs: order.append(f"{name} in {stored(instance)}")

    go = Transition(
        "go", ["new"], "done", side_effects=effects, callbacks=[note("one"), note("two")], next_transition="on"
    )
    on = Transition("on", ["done"], "further", side_effects=[note("effect")], callbacks=[note("three")])
    with hooked(go, on):
        if in_transaction:
            with transaction.atomic():
                ticket.probe.go()
        else:
            ticket.probe.go()
        chain = moves(ticket)

    assert order == ["one in done", "two in done", "effect in done", "three in further"]
    assert chain == [("new", "done"), ("done", "further")]
    assert ticket.state == stored(ticket) == "further"


def test_moves_of_one_transaction_follow_up_in_their_order(ticket: Ticket) -> None:
    """
    Two moves in one transaction: the callbacks of the first run before those of the second.
    """
    order: list[str] = []
    first = Transition("first", ["new"], "one", callbacks=[lambda instance, **kwargs: order.append("first")])
    second = Transition("second", ["one"], "two", callbacks=[lambda instance, **kwargs: order.append("second")])

    with hooked(first, second), transaction.atomic():
        ticket.probe.first()
        ticket.probe.second()

    assert order == ["first", "second"]


def test_the_next_transition_gets_the_callers_keywords(ticket: Ticket, django_user_model: Any) -> None:
    """
    User, actor, reason and the caller's own keywords go on; expected_version does not; the ids form a chain.
    """
    user = django_user_model.objects.create(username="kim")
    seen: list[dict[str, Any]] = []

    def look(instance: Any, **kwargs: Any) -> None:
        seen.append(kwargs)

    with hooked(
        Transition("go", ["new"], "done", side_effects=[look], next_transition="on"),
        Transition("on", ["done"], "further", side_effects=[look], permissions=[lambda instance, user, **kwargs: True]),
    ):
        ticket.probe.go(user=user, reason="because", colour="red", expected_version=0)
        first, second = ticket.probe.history.all()

    (one, two) = seen
    assert (two["user"], two["reason"], two["colour"]) == (user, "because", "red")
    assert two["root_id"] == one["transition_id"] == two["parent_id"]
    assert (first.actor_id, second.actor_id) == (str(user.pk), str(user.pk))
    assert second.parent_id == first.transition_id
    assert second.root_id == first.root_id == first.transition_id


def test_a_next_transition_that_may_not_run_is_skipped(ticket: Ticket, caplog: pytest.LogCaptureFixture) -> None:
    """
    A follow-up the rules refuse leaves the first move as it is, and a line in the log.
    """
    caplog.set_level(logging.INFO, "django-logic.transition")
    on = Transition("on", ["done"], "further", conditions=[lambda instance, **kwargs: False])

    with hooked(Transition("go", ["new"], "done", next_transition="on"), on):
        moved = ticket.probe.go()

    assert moved is True
    assert ticket.state == stored(ticket) == "done"
    assert any("next transition on did not run" in record.getMessage() for record in caplog.records)


def test_an_ambiguous_next_transition_runs_none(ticket: Ticket, caplog: pytest.LogCaptureFixture) -> None:
    """
    Of several follow-ups that fit none runs, which is logged as an error.
    """
    on = [Transition("on", ["done"], target) for target in ("left", "right")]

    with hooked(Transition("go", ["new"], "done", next_transition="on"), *on):
        ticket.probe.go()

    assert stored(ticket) == "done"
    assert any(record.levelno == logging.ERROR and "on" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("failing", [True, False])
def test_a_failing_next_transition_fails_nobody(failing: bool, ticket: Ticket) -> None:
    """
    The error of a follow-up is not the first caller's; its failed_state is written.
    """

    def fail(instance: Any, **kwargs: Any) -> None:
        if failing:
            raise Boom

    on = Transition("on", ["done"], "further", side_effects=[fail], failed_state="stuck")
    with hooked(Transition("go", ["new"], "done", next_transition="on"), on):
        moved = ticket.probe.go()

    assert moved is True
    assert ticket.state == stored(ticket) == ("stuck" if failing else "further")


def test_a_duplicate_has_no_callbacks_and_no_next_transition(ticket: Ticket) -> None:
    """
    A duplicate runs nothing.
    """
    ran: list[str] = []
    go = Transition("go", ["new"], "done", callbacks=[lambda instance, **kwargs: ran.append("c")], next_transition="on")
    with hooked(go, Transition("on", ["done"], "further", conditions=[lambda instance, **kwargs: bool(ran[1:])])):
        first = ticket.probe.go()
        second = ticket.probe.go()

    assert (first, second) == (True, False)
    assert ran == ["c"]
    assert stored(ticket) == "done"


def test_work_a_side_effect_scheduled_for_after_the_commit_may_move_the_object(ticket: Ticket) -> None:
    """
    After the commit the object is free: what a side effect scheduled by on_commit can move it on.
    """
    results: list[Any] = []

    def schedule(instance: Any, **kwargs: Any) -> None:
        transaction.on_commit(lambda: results.append(fresh(instance).probe.on()))

    ways = [Transition("go", ["new"], "done", side_effects=[schedule]), Transition("on", ["done"], "further")]
    with hooked(*ways):
        moved = ticket.probe.go()
        chain = moves(ticket)

    assert (moved, results) == (True, [True])
    assert chain == [("new", "done"), ("done", "further")]


def test_a_callback_of_an_object_moved_inside_may_move_the_outer_one(ticket: Ticket) -> None:
    """
    A side effect moves another object; that one's callback, after the commit, moves the first object on.
    """
    other = Ticket.objects.create()

    def move_other(instance: Any, **kwargs: Any) -> None:
        other.probe.help()

    ways = [
        Transition("go", ["new"], "done", side_effects=[move_other]),
        Transition("help", ["new"], "helped", callbacks=[lambda instance, **kwargs: fresh(ticket).probe.on()]),
        Transition("on", ["done"], "further"),
    ]
    with hooked(*ways):
        ticket.probe.go()
        chain = moves(ticket)

    assert chain == [("new", "done"), ("done", "further")]


@pytest.mark.parametrize("lock", ["row", "nowait"])
def test_an_error_in_work_scheduled_for_after_the_commit_undoes_nothing(lock: str, ticket: Ticket) -> None:
    """
    What a hook scheduled by on_commit fails after the commit: the move stands, memory says so, nobody compensates.
    """
    failures: list[Any] = []

    def schedule(instance: Any, **kwargs: Any) -> None:
        def fail() -> None:
            raise Boom

        transaction.on_commit(fail)

    way = Transition(
        "go",
        ["new"],
        "done",
        lock=lock,
        side_effects=[schedule],
        failure_callbacks=[lambda instance, exception, **kwargs: failures.append(exception)],
    )
    with hooked(way):
        with contextlib.suppress(Boom):
            ticket.probe.go()
        chain = moves(ticket)

    assert (stored(ticket), chain) == ("done", [("new", "done")])
    assert ticket.state == "done"
    assert failures == []


def test_a_callback_may_move_its_own_object(ticket: Ticket) -> None:
    """
    In a callback the object is free.
    """
    ways = [
        Transition("go", ["new"], "done", callbacks=[lambda instance, **kwargs: instance.probe.on()]),
        Transition("on", ["done"], "further", side_effects=[nothing]),
    ]
    with hooked(*ways):
        ticket.probe.go()

    assert ticket.state == stored(ticket) == "further"


def test_a_callback_writes_in_a_transaction_of_its_own(ticket: Ticket) -> None:
    """
    A callback that fails half-way leaves what it committed and does not touch the move.
    """

    def write_and_fail(instance: Any, **kwargs: Any) -> None:
        Product.objects.create(name="committed")
        raise Boom

    with hooked(Transition("go", ["new"], "done", side_effects=[nothing], callbacks=[write_and_fail])):
        ticket.probe.go()

    assert connection.in_atomic_block is False
    assert Product.objects.count() == 1
    assert stored(ticket) == "done"
