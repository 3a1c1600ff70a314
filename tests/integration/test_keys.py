"""
Prove that a call works for every kind of model and key, and that one row is one object however it is loaded.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from django_logic import Transition
from django_logic.exceptions import TransitionTemporarilyUnavailable
from django_logic.models import StatusChange
from tests.app.hooked import fresh, hooked, moves, nothing, sequences, stored
from tests.app.models import (
    Base,
    Child,
    FromAbstract,
    Numbered,
    Odd,
    Order,
    OrderProxy,
    SlugDocument,
    StampedChild,
    Ticket,
    UuidDocument,
)

pytestmark = pytest.mark.django_db(transaction=True)

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
    (Numbered, 2**34),
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
    key = made.id if model is Numbered else made.pk
    assert {row.instance_id for row in StatusChange.objects.all()} == {str(key)}


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


@pytest.mark.parametrize("model", [Child, Numbered])
def test_a_child_is_locked_by_its_parents_row(model: Any) -> None:
    """
    A move of the parent from inside a move of its child is refused: it is one row.
    """
    Base.objects.create()
    child = model.objects.create()

    def move_parent(instance: Any, **kwargs: Any) -> None:
        Base.objects.get(pk=child.id).process.publish()

    way = Transition("go", ["new"], "done", side_effects=[move_parent])
    with hooked(way, model=model), pytest.raises(TransitionTemporarilyUnavailable):
        child.probe.go()

    assert stored(child) == "new"


SPELLINGS = [
    (UuidDocument, "6F9619FF-8B86-4011-B42D-00C04FC964FF"),
    (UuidDocument, "6f9619ff8b864011b42d00c04fc964ff"),
    (Ticket, "41"),
    (Ticket, " 041"),
]


@pytest.mark.parametrize(("model", "spelling"), SPELLINGS)
@pytest.mark.parametrize("effects", [[], [nothing]])
def test_a_key_in_another_spelling_is_the_same_object(effects: list[Any], model: Any, spelling: str) -> None:
    """
    An instance made with its key as text has the same history, version and lock as the loaded one.
    """
    made = model.objects.create(pk=spelling)

    def move_loaded(instance: Any, **kwargs: Any) -> None:
        loaded = model.objects.get()
        with pytest.raises(TransitionTemporarilyUnavailable):
            loaded.probe.go()

    guarding = [move_loaded] if effects else []
    with hooked(
        Transition("go", ["new"], "done", side_effects=guarding), Transition("back", ["done"], "new"), model=model
    ):
        made.probe.go()
        loaded = model.objects.get()
        loaded.probe.back()
        chains, numbers = (moves(made), moves(loaded)), sequences(loaded)

    assert chains[0] == chains[1] == [("new", "done"), ("done", "new")]
    assert numbers == [1, 2]
