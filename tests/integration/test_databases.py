"""
Prove that a call stays on its instance's database, and works for every kind of model, key and state.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_logic import Transition
from django_logic.exceptions import InvalidTransition, TransitionTemporarilyUnavailable
from django_logic.models import AuditEntry, StatusChange
from tests.app.hooked import Boom, fail, fresh, hooked, moves, nothing, sequences, stored
from tests.app.models import (
    Base,
    Child,
    FromAbstract,
    Grade,
    Level,
    Loose,
    Odd,
    Order,
    OrderProxy,
    Parcel,
    Saved,
    SlugDocument,
    StampedChild,
    Ticket,
    UuidDocument,
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


KEYS = [
    (UuidDocument, UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff")),
    (UuidDocument, None),
    (SlugDocument, "a-b/c d%s\"'é"),
    (SlugDocument, "5"),
    (Ticket, 2**40),
    (Base, None),
    (Child, None),
    (FromAbstract, None),
    (StampedChild, 2**33),
]


@pytest.mark.parametrize(("model", "key"), KEYS)
@pytest.mark.parametrize("effects", [[], [nothing]])
def test_every_kind_of_key_and_model_moves(effects: list[Any], model: Any, key: Any) -> None:
    """
    UUID, text and big keys, parents, children and heirs of abstract models: state, history and version agree.
    """
    made = model.objects.create(**({} if key is None else {"pk": key}))
    bystander = model.objects.create(**({"pk": "other"} if model is SlugDocument else {}))

    with hooked(
        Transition("go", ["new"], "done", side_effects=effects), Transition("back", ["done"], "new"), model=model
    ):
        results = [made.probe.go(), fresh(made).probe.go(), made.probe.back(), fresh(made).probe.go()]
        chain, numbers, version = moves(made), sequences(made), made.probe.version
        others = moves(bystander)

    assert results == [True, False, True, True]
    assert chain == [("new", "done"), ("done", "new"), ("new", "done")]
    assert (numbers, version) == ([1, 2, 3], 3)
    assert (stored(made), stored(bystander), others) == ("done", "new", [])
    assert {row.instance_id for row in StatusChange.objects.all()} == {str(made.pk)}


@pytest.mark.parametrize("effects", [[], [nothing]])
def test_odd_names_and_a_hiding_manager_hinder_nobody(effects: list[Any]) -> None:
    """
    Tables and columns that need quoting move, and so does a row the model's default manager does not show.
    """
    odd = Odd()
    odd.save()

    with hooked(Transition("go", ["new"], "done", side_effects=effects), model=Odd):
        results = [odd.probe.go(), fresh(odd).probe.go()]
        chain = moves(odd)

    assert results == [True, False]
    assert chain == [("new", "done")]
    assert (odd.state, odd.updated_at) == (stored(odd), stored(odd, "updated_at"))
    assert stored(odd) == "done"


@pytest.mark.parametrize(("parent", "heir"), [(Base, Child), (Order, OrderProxy)])
def test_parent_child_and_proxy_share_one_history(parent: Any, heir: Any) -> None:
    """
    History and version belong to the model that owns the column, whoever moves it.
    """
    made = heir.objects.create()
    as_parent = parent.objects.get(pk=made.pk)
    first, second = ("publish", "archive") if parent is Base else ("approve", "cancel")

    getattr(made.process, first)()
    getattr(as_parent.process, second)()

    assert moves(made, "process") == moves(as_parent, "process")
    assert sequences(made, "process") == [1, 2]
    assert {row.model_name for row in StatusChange.objects.all()} == {parent._meta.model_name}


def test_a_child_with_a_key_of_its_own_is_locked_by_its_parents_row() -> None:
    """
    A move of the parent from inside a move of its child is refused: it is one row.
    """
    child = Child.objects.create()

    def move_parent(instance: Any, **kwargs: Any) -> None:
        Base.objects.get(pk=child.base_ptr_id).process.publish()

    way = Transition("go", ["new"], "done", side_effects=[move_parent])
    with hooked(way, model=Child), pytest.raises(TransitionTemporarilyUnavailable):
        child.probe.go()

    assert stored(child) == "new"


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
