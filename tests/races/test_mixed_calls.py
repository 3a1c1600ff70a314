"""
Prove that calls of every kind, mixed on a few rows from several threads, leave one truth.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F, Model

from django_logic import Transition
from django_logic.bulk import bulk_transition
from django_logic.exceptions import TransitionNotAllowed
from tests.app.hooked import Boom, fresh, hooked, moves, sequences, stored
from tests.app.models import Child, Product, Saved, Ticket
from tests.races.together import together

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 5
CALLS = 30
RING = ["new", "second", "third"]


def work(instance: Any, **kwargs: Any) -> None:
    """
    Write something that has to live and die with the move.
    """
    Product.objects.update(stock=F("stock") + 1)


def work_or_fail(instance: Any, luck: float, **kwargs: Any) -> None:
    """
    Write it, and fail now and then.
    """
    work(instance)
    if luck < 0.4:
        raise Boom


def declared() -> list[Transition]:
    """
    Declare one move of each kind for every step round the ring.
    """
    ways = [Transition("stay", ["new", "second"], "new")]
    for start, end in zip(RING, [*RING[1:], RING[0]], strict=True):
        ways += [
            Transition("plain", [start], end),
            Transition("bulk", [start], end),
            Transition("work", [start], end, side_effects=[work]),
            Transition("nowait", [start], end, side_effects=[work], lock="nowait"),
            Transition("cached", [start], end, conditions=[lambda instance, **kwargs: True], lock="cache"),
            Transition("flaky", [start], end, side_effects=[work_or_fail], failed_state=end),
        ]
    return ways


class Caller:
    """
    Make random calls in one thread and count the moves that were committed, and their work.
    """

    def __init__(self, rows: list[Any], seed: int) -> None:
        self.rows, self.dice = rows, random.Random(seed)  # noqa: S311 (nothing secret hangs on it)
        self.moved = self.worked = 0

    def __call__(self) -> None:
        """
        Make the calls.
        """
        copies = [fresh(row) for row in self.rows]
        for _ in range(CALLS):
            copy = self.dice.choice(copies)
            try:
                self.dice.choice([self.call, self.call, self.call_in_transaction, self.call_for_all])(copy)
            except TransitionNotAllowed:
                continue
            assert copy.state in RING

    def call(self, copy: Any) -> None:
        """
        Make one call that commits by itself.
        """
        action = self.dice.choice(["plain", "plain", "stay", "work", "nowait", "cached", "flaky"])
        try:
            moved = getattr(copy.probe, action)(luck=self.dice.random())
        except Boom:  # failed_state is a move as well
            self.moved += 1
            return
        self.moved += moved
        self.worked += moved and action in ("work", "nowait", "flaky")

    def call_in_transaction(self, copy: Any) -> None:
        """
        Make one call in a transaction that commits or not.
        """
        rolls_back = self.dice.random() < 0.5
        with transaction.atomic():
            moved = copy.probe.work()
            transaction.set_rollback(rolls_back)
        self.moved += moved and not rolls_back
        self.worked += moved and not rolls_back

    def call_for_all(self, copy: Any) -> None:
        """
        Move all rows at once.
        """
        self.moved += bulk_transition(type(copy)._default_manager.all(), "bulk").moved


@pytest.mark.parametrize("model", [Ticket, Saved, Child])
def test_mixed_calls_leave_one_truth(model: type[Model], redis_cache: None) -> None:
    """
    Fast, locked, cached, failing, rolled back and bulk moves: each chain is whole, each move and its work counts once.
    """
    rows = [model._default_manager.create() for _ in range(2)]
    product = Product.objects.create()
    callers = [Caller(rows, seed) for seed in range(THREADS)]

    with hooked(*declared(), model=model):
        outcomes = together(callers)
        chains = {row.pk: moves(row) for row in rows}
        numbers = {row.pk: sequences(row) for row in rows}

    assert [outcome.error for outcome in outcomes] == [None] * THREADS
    assert sum(map(len, chains.values())) == sum(caller.moved for caller in callers)
    assert stored(product, "stock") == sum(caller.worked for caller in callers)
    for row in rows:
        chain = chains[row.pk]
        assert numbers[row.pk] == list(range(1, len(chain) + 1))
        assert [start for start, _ in chain] == ["new", *[end for _, end in chain[:-1]]]
        assert chain[-1][1] == stored(row)
