"""
Prove what a call says of an object that is not, or not wholly, loaded, saved or there.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.db import models

from django_logic import Transition
from tests.app.hooked import all_records, fresh, hooked, moves, nothing, stored
from tests.app.models import Child, Saved, SlugDocument, Ticket, UuidDocument

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("effects", [[], [nothing]])
def test_a_deferred_state_is_read_by_the_call(effects: list[Any]) -> None:
    """
    An instance that never loaded its state moves all the same, and holds it afterwards; the rest stays deferred.
    """
    made = Ticket.objects.create()
    partial = Ticket.objects.only("id").get(pk=made.pk)

    with hooked(Transition("go", ["new"], "done", side_effects=effects)):
        moved = partial.probe.go()

    assert moved is True
    assert partial.get_deferred_fields() == {"note"}
    assert partial.state == stored(made) == "done"


@pytest.mark.parametrize("effects", [[], [nothing]])
@pytest.mark.parametrize("model", [Ticket, Child, UuidDocument, Saved])
def test_a_deleted_row_is_told_as_such(model: type[models.Model], effects: list[Any]) -> None:
    """
    An object whose row is gone raises the model's DoesNotExist, which says so.
    """
    made = model._default_manager.create()
    key = made.pk
    model._default_manager.filter(pk=key).delete()

    way = Transition("go", ["new"], "done", side_effects=effects)
    with hooked(way, model=model), pytest.raises(model.DoesNotExist, match="gone"):
        made.probe.go()

    assert all_records() == 0


@pytest.mark.parametrize("effects", [[], [nothing]])
@pytest.mark.parametrize("model", [Ticket, Child, UuidDocument, SlugDocument, Saved])
def test_an_unsaved_object_is_told_to_be_saved(model: type[models.Model], effects: list[Any]) -> None:
    """
    An object that was never saved raises DoesNotExist and says what to do; saved objects move before and after.
    """
    unsaved = model(pk=uuid4()) if model is UuidDocument else model()

    with hooked(Transition("go", ["new"], "done", side_effects=effects), model=model):
        with pytest.raises(model.DoesNotExist, match=r"no row|gone"):
            unsaved.probe.go()
        saved = model._default_manager.create(**({"pk": "a"} if model is SlugDocument else {}))
        moved = saved.probe.go()
        with pytest.raises(model.DoesNotExist):
            unsaved.probe.go()

    assert moved is True
    assert unsaved.state == "new"
    assert all_records() == 1


@pytest.mark.parametrize("effects", [[], [nothing]])
def test_a_copy_made_by_clearing_the_key_is_another_object(effects: list[Any]) -> None:
    """
    A copy without a key has no row; saved under a new key it starts a history of its own.
    """
    made = Ticket.objects.create()
    copy = fresh(made)
    copy.pk = None

    with hooked(Transition("go", ["new"], "done", side_effects=effects)):
        with pytest.raises(Ticket.DoesNotExist):
            copy.probe.go()
        copy.save()
        moved = copy.probe.go()
        chains = (moves(made), moves(copy))

    assert moved is True
    assert copy.pk != made.pk
    assert chains == ([], [("new", "done")])
    assert stored(made) == "new"
