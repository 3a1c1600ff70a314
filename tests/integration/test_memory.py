"""
Prove what a call does to the instance in memory: equal to the database after every exit.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import IntegrityError, connection, transaction

from django_logic import Action, Transition
from django_logic.exceptions import InvalidTransition, TransitionForbidden, TransitionNotAllowed
from tests.app.hooked import Boom, fail, fresh, hooked, moves, nothing, stored
from tests.app.models import Guarded, Item, Loose, Ticket

pytestmark = pytest.mark.django_db

#: For promises that show only where the call itself commits.
committing = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ticket() -> Ticket:
    """
    Give a saved object in its first state.
    """
    return Ticket.objects.create(note="first")


#: Calls on an instance whose memory says "new" while the row says "done", and what they end with.
EXITS: dict[str, tuple[Transition, dict[str, Any], Any]] = {
    "duplicate": (Transition("go", ["new"], "done"), {}, None),
    "duplicate with work": (Transition("go", ["new"], "done", side_effects=[nothing]), {}, None),
    "moved": (Transition("go", ["done"], "further"), {}, None),
    "moved with work": (Transition("go", ["done"], "further", side_effects=[nothing]), {}, None),
    "action": (Action("go", ["done"], side_effects=[nothing]), {}, None),
    "refused": (Transition("go", ["new"], "further"), {}, InvalidTransition),
    "refused action": (Action("go", ["new"]), {}, InvalidTransition),
    "condition": (
        Transition("go", ["done"], "further", conditions=[lambda instance, **kwargs: False]),
        {},
        TransitionNotAllowed,
    ),
    "permission": (
        Transition("go", ["done"], "further", permissions=[lambda instance, user, **kwargs: False]),
        {"user": AnonymousUser()},
        TransitionForbidden,
    ),
    "raising condition": (Transition("go", ["done"], "further", conditions=[fail]), {}, Boom),
    "version": (Transition("go", ["done"], "further"), {"expected_version": 9}, TransitionNotAllowed),
    "failure": (Transition("go", ["done"], "further", side_effects=[fail]), {}, Boom),
    "failed state": (Transition("go", ["done"], "further", side_effects=[fail], failed_state="failed"), {}, Boom),
    "failing prepare": (Transition("go", ["done"], "further", prepare=[fail]), {}, Boom),
}


@pytest.mark.parametrize("inside_atomic", [pytest.param(False, marks=committing), True])
@pytest.mark.parametrize("way_out", EXITS)
def test_memory_equals_the_database_after_every_exit(way_out: str, inside_atomic: bool, ticket: Ticket) -> None:
    """
    Whatever a stale copy is told, afterwards its state is the row's.
    """
    declared, keywords, expected = EXITS[way_out]
    stale = fresh(ticket)
    Ticket.objects.filter(pk=ticket.pk).update(state="done")

    def call() -> None:
        if inside_atomic:
            with transaction.atomic():
                stale.probe.go(**keywords)
        else:
            stale.probe.go(**keywords)

    with hooked(declared):
        if expected is None:
            call()
        else:
            with pytest.raises(expected):
                call()

    if inside_atomic and expected is not None:
        stale.refresh_from_db()
    assert stale.state == stored(ticket)


@pytest.mark.parametrize("slot", ["conditions", "side_effects", "prepare"])
@pytest.mark.parametrize("ending", ["success", "failure", "failed state"])
def test_a_state_a_hook_assigned_is_gone_afterwards(slot: str, ending: str, ticket: Ticket) -> None:
    """
    A hook that assigns the state in memory changes nothing that outlives the call.
    """

    def pretend(instance: Any, **kwargs: Any) -> bool:
        instance.state = "pretended"
        return True

    failing = [] if ending == "success" else [fail]
    slots: dict[str, Any] = {slot: [pretend], "failed_state": "failed" if ending == "failed state" else None}
    slots["side_effects"] = [*slots.get("side_effects", []), *failing]
    with hooked(Transition("go", ["new"], "done", **slots)):
        with contextlib.suppress(Boom):
            ticket.probe.go()
        chain = moves(ticket)

    end = {"success": "done", "failure": "new", "failed state": "failed"}[ending]
    assert ticket.state == stored(ticket) == end
    assert chain == ([] if ending == "failure" else [("new", end)])


@pytest.mark.parametrize("pretending", [fail, nothing])
def test_a_state_that_prepare_assigned_is_gone_when_it_fails(pretending: Any, ticket: Ticket) -> None:
    """
    The same when prepare itself is the last thing that ran: it raises, or the move is then refused.
    """

    def pretend(instance: Any, **kwargs: Any) -> None:
        instance.state = "pretended"
        Ticket.objects.filter(pk=instance.pk).update(note="closed")
        pretending(instance)

    open_only = Transition(
        "go", ["new"], "done", prepare=[pretend], conditions=[lambda instance, **kwargs: instance.note == "first"]
    )
    with hooked(open_only), pytest.raises((Boom, TransitionNotAllowed)):
        ticket.probe.go()

    assert ticket.state == stored(ticket) == "new"


@committing
def test_times_are_the_rows_after_a_failed_commit() -> None:
    """
    When the commit fails, state and auto_now fields in memory are those of the row.
    """
    if connection.vendor == "mysql":
        pytest.skip("InnoDB checks foreign keys at once")
    loose = Loose.objects.create(state="new")

    def break_at_commit(instance: Any, **kwargs: Any) -> None:
        Item.objects.create(order_id=10**6, product_id=10**6)

    way = Transition("go", ["new"], "done", side_effects=[break_at_commit])
    with hooked(way, model=Loose), pytest.raises(IntegrityError):
        loose.probe.go()

    assert (loose.state, loose.updated_at) == (stored(loose), stored(loose, "updated_at"))


def test_times_are_the_rows_after_failed_state_and_a_retry() -> None:
    """
    Every write moves the time, failed_state too, and memory has the same one.
    """
    guarded = Guarded.objects.create()
    times = [guarded.updated_at]
    troubles: list[Exception] = [Boom()]

    def work(instance: Any, **kwargs: Any) -> None:
        if troubles:
            raise troubles.pop()

    way = Transition("go", ["new", "failed"], "done", side_effects=[work], failed_state="failed")
    with hooked(way, model=Guarded):
        with pytest.raises(Boom):
            guarded.probe.go()
        times.append(guarded.updated_at)
        assert guarded.updated_at == stored(guarded, "updated_at")
        guarded.probe.go()
        times.append(guarded.updated_at)

    assert guarded.updated_at == stored(guarded, "updated_at")
    assert times == sorted(set(times))
