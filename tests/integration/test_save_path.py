"""
Prove that a model which listens to its saves is written by save(), once, and is told the truth.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, models, transaction
from django.db.models.signals import post_save, pre_save
from django.dispatch import Signal
from django.test.utils import CaptureQueriesContext

from django_logic import Transition
from django_logic.exceptions import TransitionNotAllowed
from tests.app.hooked import fresh, hooked, moves, nothing, receiver, stored
from tests.app.models import Child, Loose, Order, OrderProxy, Saved, Silent, StampedChild

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("inside_atomic", [False, True])
@pytest.mark.parametrize("effects", [[], [nothing]])
def test_a_save_override_is_called_once(effects: list[Any], inside_atomic: bool) -> None:
    """
    The move calls save() exactly once, with the state and the auto_now fields, and the time moves.
    """
    saved = Saved.objects.create()
    before, saved.seen = saved.updated_at, []

    with hooked(Transition("go", ["new"], "done", side_effects=effects), model=Saved):
        if inside_atomic:
            with transaction.atomic():
                moved = saved.probe.go()
        else:
            moved = saved.probe.go()
        chain = moves(saved)

    assert moved is True
    assert saved.seen == [["state", "updated_at"]]
    assert chain == [("new", "done")]
    assert saved.state == stored(saved) == "done"
    assert saved.updated_at == stored(saved, "updated_at") > before


@pytest.mark.parametrize("signal", [pre_save, post_save])
@pytest.mark.parametrize("effects", [[], [nothing]])
def test_receivers_hear_one_save(signal: Signal, effects: list[Any]) -> None:
    """
    pre_save and post_save receivers are called once, with the new state on the instance and the fields written.
    """
    order = Order.objects.create()
    before = order.updated_at

    way = Transition("go", ["draft"], "done", side_effects=effects)
    with receiver(signal, Order, lambda instance: None) as heard, hooked(way, model=Order, field="status"):
        order.probe.go()

    assert [entry["state"] for entry in heard] == ["done"]
    assert heard[0]["update_fields"] == frozenset({"status", "updated_at"})
    assert order.updated_at == stored(order, "updated_at") > before


def test_a_receiver_for_every_model_is_heard_too() -> None:
    """
    A receiver without a sender makes every model listen.
    """
    order = Order.objects.create()

    with receiver(post_save, None, lambda instance: None) as heard:
        order.process.cancel()

    assert [entry["state"] for entry in heard if entry["sender"] is Order] == ["cancelled"]


@pytest.mark.parametrize("sender", [Order, OrderProxy])
def test_a_proxy_tells_its_own_receivers(sender: Any) -> None:
    """
    Receivers are called as Django calls them: those of the class the instance has.
    """
    made = Order.objects.create()
    order = OrderProxy.objects.get(pk=made.pk)

    with receiver(post_save, sender, lambda instance: None) as heard:
        order.process.cancel()

    assert len(heard) == (1 if sender is OrderProxy else 0)
    assert stored(made, "status") == "cancelled"


def test_without_listeners_the_write_is_direct() -> None:
    """
    When the last receiver is gone the move is a statement again.
    """
    order = Order.objects.create()
    with receiver(post_save, Order, lambda instance: None):
        pass

    with CaptureQueriesContext(connection) as captured:
        order.process.cancel()

    is_postgres = connection.vendor == "postgresql"
    assert not is_postgres or len(captured) == 1
    assert order.status == stored(order, "status") == "cancelled"


def test_unsaved_fields_are_not_saved_along() -> None:
    """
    save(update_fields=...) writes the state, not whatever else the caller has on the instance.
    """
    saved = Saved.objects.create()
    saved.saves = 7

    saved.process.publish()

    assert stored(saved, "saves") == 0
    assert stored(saved) == "published"


def test_a_save_that_saves_nothing_leaves_no_record() -> None:
    """
    An override that does nothing is no move: refused, no history, memory equals the row.
    """
    silent = Silent.objects.create()

    with hooked(Transition("go", ["new"], "done"), model=Silent):
        with pytest.raises(TransitionNotAllowed):
            silent.probe.go()
        chain = moves(silent)

    assert chain == []
    assert silent.state == stored(silent) == "new"


def test_a_stale_copy_saves_nothing_old() -> None:
    """
    The row is read under the lock: a copy whose memory is behind neither moves twice nor writes its old state.
    """
    saved = Saved.objects.create()
    stale = fresh(saved)
    saved.process.publish()

    moved = stale.process.publish()

    assert moved is False
    assert not hasattr(stale, "seen")
    assert stored(stale) == stale.state == "published"


@pytest.mark.parametrize("model", [Saved, Loose, StampedChild])
def test_auto_now_moves_with_every_state(model: type[models.Model]) -> None:
    """
    The time of the last change moves with the state in the row and in memory, wherever its column is.
    """
    made = model._default_manager.create(state="new")
    times = [made.updated_at]

    with hooked(Transition("go", ["new", "done"], "done", side_effects=[nothing]), model=model):
        for _ in range(3):
            made.probe.go()
            assert made.updated_at == stored(made, "updated_at")
            times.append(made.updated_at)

    assert times == sorted(set(times))


def test_a_child_is_saved_like_its_parent() -> None:
    """
    Receivers of a multi-table child hear its move; the parent's row holds the state.
    """
    child = Child.objects.create(title="a")

    with receiver(post_save, Child, lambda instance: None) as heard:
        child.process.publish()

    assert len(heard) == 1
    assert stored(child.base_ptr) == stored(child) == "published"
    assert moves(child, "process") == [("new", "published")]
