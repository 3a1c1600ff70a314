"""
Prove that a call stays on its instance's database, and works for every kind of model, key and state.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_logic import Transition
from django_logic.exceptions import InvalidTransition
from django_logic.models import AuditEntry, StatusChange
from tests.app.hooked import Boom, fail, fresh, hooked, moves, nothing, stored
from tests.app.models import (
    Grade,
    Level,
    Loose,
    Parcel,
    Saved,
    Ticket,
)

pytestmark = pytest.mark.django_db(transaction=True)

both = pytest.mark.django_db(databases=["default", "other"], transaction=True)


@both
@pytest.mark.parametrize("model", [Ticket, Saved])
@pytest.mark.parametrize("effects", [[], [nothing]])
def test_everything_happens_on_the_instances_alias(effects: list[Any], model: Any, settings: Any) -> None:
    """
    Two rows with one key on two databases: state, history and audit are read and written where the instance lives.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    here = model.objects.using("default").create(pk=7, state="elsewhere")
    there = model.objects.using("other").create(pk=7)

    with hooked(Transition("go", ["new"], "done", side_effects=effects), model=model):
        with CaptureQueriesContext(connections["default"]) as on_default:
            moved = there.probe.go()
        chain, version = moves(there), there.probe.version
        with pytest.raises(InvalidTransition):
            here.probe.go()

    assert moved is True
    assert on_default.captured_queries == []
    assert (stored(there), stored(here)) == ("done", "elsewhere")
    assert (chain, version) == ([("new", "done")], 1)
    assert StatusChange.objects.using("default").count() == 0
    assert AuditEntry.objects.using("other").get().outcome == "moved"
    assert AuditEntry.objects.using("default").get().outcome == "refused"


@both
def test_failed_state_and_savepoints_are_on_the_instances_alias() -> None:
    """
    A failure on the other database writes failed_state there and leaves an open transaction here alone.
    """
    there = Ticket.objects.using("other").create()

    with hooked(Transition("go", ["new"], "done", side_effects=[fail], failed_state="failed")):
        with transaction.atomic(using="default"):
            here = Ticket.objects.using("default").create()
            with pytest.raises(Boom):
                there.probe.go()
        chain = moves(there)

    assert Ticket.objects.using("default").filter(pk=here.pk).exists()
    assert chain == [("new", "failed")]
    assert there.state == stored(there) == "failed"


@both
def test_callbacks_wait_for_the_commit_of_the_instances_alias() -> None:
    """
    A transaction on the default database keeps nobody waiting who was moved on the other.
    """
    there, ran = Ticket.objects.using("other").create(), []

    way = Transition("go", ["new"], "done", callbacks=[lambda instance, **kwargs: ran.append(instance.pk)])
    with hooked(way), transaction.atomic(using="default"):
        there.probe.go()
        before_commit_here = list(ran)

    assert before_commit_here == ran == [there.pk]


@both
def test_a_row_on_one_alias_does_not_lock_its_namesake() -> None:
    """
    From a hook of the row on one database the row with the same key on the other one can be moved.
    """
    here, there = Ticket.objects.using("default").create(pk=7), Ticket.objects.using("other").create(pk=7)

    def move_namesake(instance: Any, **kwargs: Any) -> None:
        there.process.publish()

    with hooked(Transition("go", ["new"], "done", side_effects=[move_namesake])):
        here.probe.go()

    assert (stored(here), stored(there)) == ("done", "published")


@pytest.mark.parametrize("effects", [[], [nothing]])
def test_integer_states_with_zero(effects: list[Any]) -> None:
    """
    Zero is a state like any other, as source and as target.
    """
    level = Level.objects.create()

    with hooked(
        Transition("up", [Grade.NONE], Grade.GOLD, side_effects=effects),
        Transition("down", [Grade.GOLD], Grade.NONE, side_effects=effects),
        model=Level,
    ):
        results = [level.probe.up(), fresh(level).probe.up(), level.probe.down(), fresh(level).probe.down()]
        chain = moves(level)

    assert results == [True, False, True, False]
    assert chain == [("0", "2"), ("2", "0")]
    assert (level.state, stored(level)) == (0, 0)


@pytest.mark.parametrize("effects", [[], [nothing]])
@pytest.mark.parametrize("empty", ["", None])
def test_an_empty_state_and_no_state(empty: str | None, effects: list[Any]) -> None:
    """
    The empty text and NULL are states, as source and as target, and are told apart.
    """
    loose = Loose.objects.create(state=empty)
    other = "" if empty is None else None
    bystander = Loose.objects.create(state=other)

    with hooked(
        Transition("go", [empty], "done", side_effects=effects),
        Transition("back", ["done"], empty, side_effects=effects),
        model=Loose,
    ):
        results = [loose.probe.go(), fresh(loose).probe.go(), loose.probe.back(), fresh(loose).probe.back()]
        chain = moves(loose)
        with pytest.raises(InvalidTransition):
            bystander.probe.go()

    assert results == [True, False, True, False]
    assert chain == [(empty, "done"), ("done", empty)]
    assert (loose.state, stored(loose), stored(bystander)) == (empty, empty, other)


def test_two_machines_of_one_model_are_independent() -> None:
    """
    Each state field has its own state, history and version.
    """
    parcel = Parcel.objects.create()

    parcel.payment.pay()
    parcel.parcel.pack()
    parcel.payment.refund()

    assert moves(parcel, "payment") == [("new", "paid"), ("paid", "refunded")]
    assert moves(parcel, "parcel") == [("new", "packed")]
    assert (parcel.payment.version, parcel.parcel.version) == (2, 1)
    assert set(StatusChange.objects.values_list("process_name", "field_name")) == {
        ("payment", "payment_status"),
        ("parcel", "parcel_status"),
    }
