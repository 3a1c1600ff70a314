"""
Time several ways of doing one thing in short turns, so that whoever disturbs the machine disturbs all alike.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from django.db import connections

#: Moves of a turn: about as long as a process waits between two words to relays.
TURN = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """
    One way: its orders, what to do to each, and what surrounds a turn without being timed.
    """

    orders: Sequence[Any]
    move: Callable[[Any], object]
    around: Callable[[], AbstractContextManager[object]]


def take_turns(ways: Mapping[str, Way], *, turn: int = TURN, pause: float = 0.0, seed: int = 0) -> dict[str, float]:
    """
    Return the seconds each way took for its orders, but those of the first turn.

    ``pause`` is slept before each turn.
    """
    spent = dict.fromkeys(ways, 0.0)
    order_of_ways = random.Random(seed)  # noqa: S311 (an order, not a secret)
    count = max(len(way.orders) for way in ways.values())
    gc.collect()
    for start in range(0, count, turn):
        for name in order_of_ways.sample(list(ways), len(ways)):
            way = ways[name]
            with way.around():
                time.sleep(pause)
                started = time.perf_counter()
                for order in way.orders[start : start + turn]:
                    way.move(order)
                if start:
                    spent[name] += time.perf_counter() - started
    return spent


def settle(alias: str = "default") -> None:
    """
    Leave no dead rows, fresh statistics, and no checkpoint pending.
    """
    with connections[alias].cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("CHECKPOINT")
    gc.collect()


def empty(alias: str, tables: Sequence[str]) -> None:
    """
    Empty tables.
    """
    names = ", ".join(f'"{table}"' for table in tables)
    with connections[alias].cursor() as cursor:
        cursor.execute(f"TRUNCATE {names} CASCADE")
