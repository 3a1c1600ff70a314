"""
Test that messages of one object are numbered in the order of its moves, however many write.
"""

from __future__ import annotations

import threading

import pytest

from django_logic import Transition
from django_logic.outbox.models import OutboxDelivery
from tests.app.models import Ticket
from tests.flows import Bind, declare
from tests.races.together import Worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]

WRITERS, ROUNDS, OBJECTS = 8, 10, 4


@pytest.mark.parametrize("is_locked", [False, True], ids=["fast", "locked"])
def test_deliveries_are_numbered_in_the_order_of_the_moves(bind: Bind, is_locked: bool) -> None:
    """
    Eight writers on four objects: ids of deliveries grow with the sequence, since both are given under the row's lock.
    """
    effects = [lambda ticket, **_keywords: None] if is_locked else []
    bind(declare(Transition("turn", ["new"], "new", side_effects=effects)))
    pks = [Ticket.objects.create().pk for _count in range(OBJECTS)]
    gate = threading.Barrier(WRITERS)

    def write(first: int) -> None:
        for count in range(ROUNDS * OBJECTS):
            Ticket.objects.get(pk=pks[(first + count) % OBJECTS]).flow.turn()

    writers = [Worker(lambda first=first: write(first), gate) for first in range(WRITERS)]
    for writer in writers:
        writer.result()

    assert OutboxDelivery.objects.count() == WRITERS * ROUNDS * OBJECTS
    for pk in pks:
        rows = OutboxDelivery.objects.filter(key=str(pk)).order_by("id")
        assert list(rows.values_list("message__sequence", flat=True)) == list(range(1, WRITERS * ROUNDS + 1))
