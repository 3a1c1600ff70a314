"""
Prove prepare hooks: slow work before the lock, taken back when the move then does not happen.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.db import connection

from django_logic import Transition
from django_logic.exceptions import InvalidTransition, TransitionForbidden, TransitionNotAllowed
from tests.app.hooked import Boom, Diary, all_records, fail, fresh, hooked, moves, stored
from tests.app.models import Product, Ticket
from tests.races.together import Worker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def diary() -> Diary:
    """
    Give an empty diary.
    """
    return Diary()


@pytest.fixture
def ticket() -> Ticket:
    """
    Give a saved object in its first state.
    """
    return Ticket.objects.create()


def move_elsewhere(ticket: Ticket, action: str) -> Any:
    """
    Make a prepare hook during which somebody else moves the object.
    """

    def prepare(instance: Any, **kwargs: Any) -> None:
        assert Worker(lambda: getattr(fresh(ticket).probe, action)()).result() is True

    return prepare


def test_prepare_runs_before_the_lock_and_hands_on_its_results(diary: Diary, ticket: Ticket) -> None:
    """
    No transaction of ours is open and others can take the row; what prepare puts into the context reaches all hooks.
    """
    seen: list[Any] = []

    def reserve(instance: Any, context: dict[str, Any], **kwargs: Any) -> None:
        seen.append(connection.in_atomic_block)
        seen.append(Worker(lambda: fresh(ticket).probe.free()).result())
        context["reservation"] = 17

    def read(instance: Any, context: dict[str, Any], **kwargs: Any) -> bool:
        seen.append(context.get("reservation"))
        return True

    with hooked(
        Transition("go", ["new"], "done", prepare=[reserve], conditions=[read], side_effects=[read], callbacks=[read]),
        Transition("free", ["new"], "new", lock="nowait"),
    ):
        moved = ticket.probe.go()

    assert moved is True
    assert seen == [None, False, True, 17, 17, 17]


def test_a_call_that_would_be_refused_prepares_nothing(diary: Diary, ticket: Ticket, django_user_model: Any) -> None:
    """
    Source, permission and condition are asked before the slow work; nothing to compensate either.
    """
    hooks = {"prepare": [diary.hook("prepare")], "failure_callbacks": [diary.hook("failure")]}
    user = django_user_model(username="kim")
    with hooked(
        Transition("away", ["elsewhere"], "done", **hooks),
        Transition("denied", ["new"], "done", permissions=[lambda instance, user, **kwargs: False], **hooks),
        Transition("unmet", ["new"], "done", conditions=[lambda instance, **kwargs: False], **hooks),
        Transition("there", ["elsewhere"], "new", **hooks),
    ):
        with pytest.raises(InvalidTransition):
            ticket.probe.away()
        with pytest.raises(TransitionForbidden):
            ticket.probe.denied(user=user)
        with pytest.raises(TransitionNotAllowed):
            ticket.probe.unmet()
        duplicate = ticket.probe.there()

    assert duplicate is False
    assert diary == []


def test_a_failing_prepare_fails_the_call(diary: Diary, ticket: Ticket) -> None:
    """
    What prepare raises reaches the caller; nothing is written, not even failed_state; failure callbacks run once.
    """
    error = Boom()
    way = Transition(
        "go",
        ["new"],
        "done",
        prepare=[diary.hook("one"), diary.hook("two", error), diary.hook("three")],
        side_effects=[diary.hook("effect")],
        failed_state="failed",
        failure_callbacks=[diary.hook("failure")],
    )
    with hooked(way), pytest.raises(Boom) as raised:
        ticket.probe.go()

    assert raised.value is error
    assert diary == [("one", "new"), ("two", "new"), ("failure", "new", error)]
    assert stored(ticket) == ticket.state == "new"
    assert all_records() == 0


def test_prepare_keeps_what_it_committed(ticket: Ticket) -> None:
    """
    Prepare runs outside the move's transaction: what it wrote stays when the move fails.
    """

    def write(instance: Any, **kwargs: Any) -> None:
        Product.objects.create(name="reserved")

    with hooked(Transition("go", ["new"], "done", prepare=[write], side_effects=[fail])), pytest.raises(Boom):
        ticket.probe.go()

    assert Product.objects.count() == 1


@pytest.mark.parametrize("has_effect", [True, False])
def test_a_prepared_call_that_is_then_refused_is_compensated_once(
    has_effect: bool, diary: Diary, ticket: Ticket
) -> None:
    """
    The object left its sources while prepare ran: refused, and failure callbacks get that refusal, once.
    """
    way = Transition(
        "go",
        ["new"],
        "done",
        prepare=[diary.hook("prepare"), move_elsewhere(ticket, "leave")],
        side_effects=[diary.hook("effect")] if has_effect else [],
        failure_callbacks=[diary.hook("failure")],
    )
    with hooked(way, Transition("leave", ["new"], "left")):
        with pytest.raises(InvalidTransition) as refused:
            ticket.probe.go()
        chain = moves(ticket)

    assert diary == [("prepare", "new"), ("failure", "left", refused.value)]
    assert chain == [("new", "left")]
    assert ticket.state == "left"


def test_a_prepared_call_that_turns_out_a_duplicate_is_compensated(diary: Diary, ticket: Ticket) -> None:
    """
    Somebody else was faster: False for the caller, and failure callbacks get a refusal with the code duplicate.
    """
    slots = {"callbacks": [diary.hook("callback")], "failure_callbacks": [diary.hook("failure")]}
    slow = Transition("go", ["new"], "done", prepare=[move_elsewhere(ticket, "jump")], **slots)
    with hooked(slow, Transition("jump", ["new"], "done")):
        moved = ticket.probe.go()

    assert moved is False
    ((name, state, error),) = diary
    assert (name, state, error.reason) == ("failure", "done", "duplicate")


def test_a_prepared_call_that_is_lost_is_compensated_once(diary: Diary, ticket: Ticket) -> None:
    """
    The row is moved behind our back under the lock: refused as moved, failure callbacks run once with that refusal.
    """

    def write_by_hand(instance: Any, **kwargs: Any) -> None:
        Ticket.objects.filter(pk=instance.pk).update(state="by hand")

    way = Transition(
        "go",
        ["new"],
        "done",
        prepare=[diary.hook("prepare")],
        side_effects=[write_by_hand],
        failure_callbacks=[diary.hook("failure")],
    )
    with hooked(way), pytest.raises(TransitionNotAllowed) as refused:
        ticket.probe.go()

    assert refused.value.reason == "moved"
    assert diary == [("prepare", "new"), ("failure", "new", refused.value)]


def test_a_prepared_call_whose_work_fails_is_compensated_once(diary: Diary, ticket: Ticket) -> None:
    """
    Prepare and side effect of one call share its failure callbacks: they run once, with the side effect's error.
    """
    error = Boom()
    way = Transition(
        "go",
        ["new"],
        "done",
        prepare=[diary.hook("prepare")],
        side_effects=[diary.hook("effect", error)],
        failure_callbacks=[diary.hook("failure")],
    )
    with hooked(way), pytest.raises(Boom):
        ticket.probe.go()

    assert diary == [("prepare", "new"), ("effect", "new"), ("failure", "new", error)]


def test_a_prepared_call_whose_condition_then_raises_is_compensated(diary: Diary, ticket: Ticket) -> None:
    """
    A guard that raises under the lock leaves no reservation behind.
    """
    answers: list[Any] = [Boom("under the lock"), True]

    def ask(instance: Any, **kwargs: Any) -> bool:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    way = Transition(
        "go",
        ["new"],
        "done",
        conditions=[ask],
        prepare=[diary.hook("prepare")],
        failure_callbacks=[diary.hook("failure")],
    )
    with hooked(way), pytest.raises(Boom) as raised:
        ticket.probe.go()

    assert diary == [("prepare", "new"), ("failure", "new", raised.value)]


@pytest.mark.parametrize("other_prepares", [True, False])
def test_what_one_declaration_prepared_is_not_used_for_another(
    other_prepares: bool, diary: Diary, ticket: Ticket
) -> None:
    """
    While prepare ran the object came where a namesake speaks: the prepared work is taken back, whatever happens then.
    """
    first = Transition(
        "go",
        ["new"],
        "done",
        prepare=[diary.hook("prepare one"), move_elsewhere(ticket, "leave")],
        failure_callbacks=[diary.hook("failure one")],
    )
    second = Transition(
        "go",
        ["left"],
        "returned",
        prepare=[diary.hook("prepare two")] if other_prepares else [],
        failure_callbacks=[diary.hook("failure two")],
    )
    with hooked(first, second, Transition("leave", ["new"], "left")):
        with suppress(TransitionNotAllowed):
            ticket.probe.go()
        chain = moves(ticket)

    assert diary.names.count("failure one") == 1
    assert "failure two" not in diary.names
    assert ticket.state == stored(ticket) == chain[-1][1]
