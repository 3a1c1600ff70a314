"""
Prove that a receiver which fails, interferes or schedules work can't part row, record and memory.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.db import transaction
from django.db.models.signals import post_save, pre_save
from django.dispatch import Signal

from django_logic import Transition
from django_logic.exceptions import TransitionNotAllowed, TransitionTemporarilyUnavailable
from tests.app.hooked import Boom, all_records, fail, fresh, hooked, moves, nothing, receiver, stored
from tests.app.models import Loose

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("signal", [pre_save, post_save])
@pytest.mark.parametrize("effects", [[], [nothing]])
def test_a_raising_receiver_undoes_the_move(signal: Signal, effects: list[Any]) -> None:
    """
    What a receiver raises reaches the caller; row, record and memory are as before.
    """
    loose = Loose.objects.create(state="new")
    before = fresh(loose)

    way = Transition("go", ["new"], "done", side_effects=effects)
    with receiver(signal, Loose, fail), hooked(way, model=Loose), pytest.raises(Boom):
        loose.probe.go()

    assert all_records() == 0
    assert (loose.state, loose.updated_at) == (before.state, before.updated_at)
    assert (fresh(loose).state, fresh(loose).updated_at) == (before.state, before.updated_at)


def test_a_raising_receiver_sends_the_object_to_failed_state() -> None:
    """
    A receiver that refuses the target is a failure like any other: failed_state goes through save() as well.
    """
    loose = Loose.objects.create(state="new")

    def refuse_done(instance: Any) -> None:
        if instance.state == "done":
            raise Boom

    way = Transition("go", ["new"], "done", failed_state="failed")
    with receiver(pre_save, Loose, refuse_done) as heard, hooked(way, model=Loose):
        with pytest.raises(Boom):
            loose.probe.go()
        chain = moves(loose)

    assert [entry["state"] for entry in heard] == ["done", "failed"]
    assert chain == [("new", "failed")]
    assert loose.state == stored(loose) == "failed"


def test_a_receiver_can_not_change_the_target() -> None:
    """
    A receiver that puts another state on the instance makes the move fail; nothing is recorded or stored.
    """
    loose = Loose.objects.create(state="new")

    def redirect(instance: Any) -> None:
        instance.state = "elsewhere"

    way = Transition("go", ["new"], "done")
    with receiver(pre_save, Loose, redirect), hooked(way, model=Loose), pytest.raises(TransitionNotAllowed):
        loose.probe.go()

    assert all_records() == 0
    assert loose.state == stored(loose) == "new"


def test_a_receiver_that_moves_the_object_is_refused() -> None:
    """
    A receiver runs inside the move, so a second move from there is refused and undoes the first.
    """
    loose = Loose.objects.create(state="new")

    def move_on(instance: Any) -> None:
        fresh(instance).probe.on()

    with (
        receiver(post_save, Loose, move_on),
        hooked(Transition("go", ["new"], "done"), Transition("on", ["done", "new"], "further"), model=Loose),
        pytest.raises(TransitionTemporarilyUnavailable),
    ):
        loose.probe.go()

    assert all_records() == 0
    assert loose.state == stored(loose) == "new"


@pytest.mark.parametrize("lock", ["row", "cache"])
def test_work_a_receiver_scheduled_for_after_the_commit_undoes_nothing(
    lock: str, redis_cache: None, settings: Any
) -> None:
    """
    What a receiver scheduled by on_commit fails after the commit: the move stands, memory and history say so.
    """
    loose = Loose.objects.create(state="new")
    failures: list[Any] = []

    def schedule(instance: Any) -> None:
        transaction.on_commit(lambda: fail(instance))

    way = Transition(
        "go",
        ["new"],
        "done",
        lock=lock,
        failure_callbacks=[lambda instance, exception, **kwargs: failures.append(exception)],
    )
    with receiver(post_save, Loose, schedule), hooked(way, model=Loose):
        with suppress(Boom):
            loose.probe.go()
        chain = moves(loose)

    assert chain == [("new", "done")]
    assert loose.state == stored(loose) == "done"
    assert failures == []
