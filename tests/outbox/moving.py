"""
Keep objects moving while something else happens, and give relays a heap of work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django_logic.bulk import bulk_transition
from tests.app.models import Ticket
from tests.outbox.relays import ask
from tests.races.together import Worker

__all__ = ["move_all", "moving"]

#: Between two moves, so that a broker which is away for seconds has no thousands to catch up on. Seconds.
BREATH = 0.02


def move_all(objects: Sequence[Ticket], times: int) -> None:
    """
    Move objects all at once, so often, so that a relay has work for a while.
    """
    rows = Ticket.objects.filter(pk__in=[ticket.pk for ticket in objects])
    for _count in range(times):
        bulk_transition(rows, "touch", reason="all at once")


@contextmanager
def moving(objects: Sequence[Ticket]) -> Iterator[None]:
    """
    Move objects one after the other, again and again, until the block ends.

    Raises: what a move has raised.
    """
    is_over = threading.Event()

    def move() -> None:
        while not is_over.is_set():
            for ticket in objects:
                ask(ticket, "on")
                is_over.wait(BREATH)

    worker = Worker(move)
    try:
        yield
    finally:
        is_over.set()
        outcome = worker.join()
    if outcome.error is not None:
        raise outcome.error
