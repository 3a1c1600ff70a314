"""
Prove that an object can't be moved from inside its own move, and that nothing is overwritten that was.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from django.db import transaction

from django_logic import Transition
from django_logic.exceptions import TransitionNotAllowed, TransitionTemporarilyUnavailable
from tests.app.hooked import all_records, fresh, hooked, moves, stored
from tests.app.models import Product, Ticket

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ticket() -> Ticket:
    """
    Give a saved object in its first state.
    """
    return Ticket.objects.create()


@pytest.mark.django_db
@pytest.mark.parametrize("lock", ["row", "nowait", "cache"])
@pytest.mark.parametrize("copy", [False, True])
def test_a_move_from_inside_a_hook_is_refused(lock: str, copy: bool, ticket: Ticket, request: Any) -> None:
    """
    Moving the object that is being moved is refused as locked, through the same instance or another; nothing stays.
    """
    if lock == "cache":
        request.getfixturevalue("redis_cache")

    def move_again(instance: Any, **kwargs: Any) -> None:
        (fresh(instance) if copy else instance).process.publish()

    with hooked(Transition("go", ["new"], "done", side_effects=[move_again], lock=lock)):
        with pytest.raises(TransitionTemporarilyUnavailable) as refused:
            ticket.probe.go()
        chain = moves(ticket)

    assert refused.value.reason == "locked"
    assert ticket.state == stored(ticket) == "new"
    assert chain == moves(ticket, "process") == []


@pytest.mark.django_db
def test_a_hook_may_survive_its_refused_move(ticket: Ticket) -> None:
    """
    A hook that catches that refusal lets the outer move happen, once.
    """

    def try_to_move(instance: Any, **kwargs: Any) -> None:
        with pytest.raises(TransitionTemporarilyUnavailable):
            instance.process.publish()

    with hooked(Transition("go", ["new"], "done", side_effects=[try_to_move])):
        moved = ticket.probe.go()
        chain = moves(ticket)

    assert moved is True
    assert chain == [("new", "done")]
    assert ticket.state == stored(ticket) == "done"


@pytest.mark.parametrize("inside_atomic", [False, True])
def test_a_hook_that_moves_the_row_behind_our_back_loses_everything(inside_atomic: bool, ticket: Ticket) -> None:
    """
    A state written by QuerySet.update() in a hook is not overwritten: the call is refused as moved and undone.
    """

    def write_by_hand(instance: Any, **kwargs: Any) -> None:
        Product.objects.create(name="written")
        Ticket.objects.filter(pk=instance.pk).update(state="by hand")

    way = Transition("go", ["new"], "done", side_effects=[write_by_hand], failed_state="failed")
    with hooked(way), transaction.atomic() if inside_atomic else nullcontext():
        with pytest.raises(TransitionNotAllowed) as refused:
            ticket.probe.go()
        in_between = (ticket.state, stored(ticket))

    assert refused.value.reason == "moved"
    assert in_between == ("new", "new")
    assert ticket.state == stored(ticket) == "new"
    assert not Product.objects.exists()
    assert all_records() == 0
