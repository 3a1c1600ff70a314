"""
What a message adds to a move: the same moves with and without it, in turns.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import connection
from django.test.utils import override_settings

from django_logic import extension
from django_logic.bulk import bulk_transition
from django_logic.models import StatusChange
from django_logic.outbox.events import rows_of
from django_logic.outbox.models import OutboxDelivery, OutboxMessage
from django_logic.outbox.relay.wake import wake
from events_harness.turns import TURN, Way, empty, settle, take_turns
from harness.contender import WrongResult, check_moved, stage
from kits.events_ours.models import EffectOrder, Order
from kits.events_ours.outbox import Ours

OFF, ON, NONE = "off", "on", "none"
MODELS = {"fast": Order, "effect": EffectOrder, "spaced": Order}
#: Longer than a process is silent after a word to relays, so that each move sends one.
PAUSE = 0.051


@contextmanager
def off() -> Iterator[None]:
    """
    Move as in a project without the app.
    """
    extension.unregister(rows_of)
    try:
        yield
    finally:
        extension.register_contributor(rows_of, after_write=wake)


@contextmanager
def on() -> Iterator[None]:
    """
    Move as ever.
    """
    yield


@contextmanager
def none() -> Iterator[None]:
    """
    Move as where somebody reads messages from the database's log.
    """
    with override_settings(DJANGO_LOGIC={**getattr(settings, "DJANGO_LOGIC", {}), "OUTBOX_RELAY": "none"}):
        yield


AROUND = {OFF: off, ON: on, NONE: none}
#: The rows a move leaves: messages and deliveries.
ROWS = {OFF: (0, 0), ON: (1, 1), NONE: (1, 0)}


@contextmanager
def binding(by: str) -> Iterator[None]:
    """
    Bind parameters by the client, as Django does by default, or by the server with kept statements.
    """
    before = connection.settings_dict["OPTIONS"]
    if by == "server":
        connection.close()
        connection.settings_dict["OPTIONS"] = {**before, **settings.PREPARED}
    try:
        yield
    finally:
        if by == "server":
            connection.close()
            connection.settings_dict["OPTIONS"] = before


def cost(contender: str, shape: str, by: str, moves: int, seed: int) -> dict[str, Any]:
    """
    Time moves of one shape in every way.

    Units: seconds for that many moves.
    """
    empty("default", Ours.tables)
    with binding(by):
        if shape == "bulk":
            return bulk(moves, seed)
        turn, pause = (1, PAUSE) if shape == "spaced" else (TURN, 0.0)
        ways = {
            name: Way(orders=stage(MODELS[shape], turn + moves), move=approve, around=around)
            for name, around in AROUND.items()
        }
        settle()
        spent = take_turns(ways, turn=turn, pause=pause, seed=seed)
    for way in ways.values():
        check_moved(MODELS[shape], [order.pk for order in way.orders])
    check_rows(turn + moves, AROUND)
    return spent


def bulk(rows: int, seed: int) -> dict[str, float]:
    """
    Move that many rows at once in every way.
    """
    spent = {}
    for name in random.Random(seed).sample(list(AROUND), len(AROUND)):  # noqa: S311 (an order, not a secret)
        empty("default", Ours.tables)
        keys = [order.pk for order in stage(Order, rows)]
        settle()
        with AROUND[name]():
            started = time.perf_counter()
            bulk_transition(Order.objects.filter(pk__gte=min(keys), pk__lte=max(keys)), "approve")
            spent[name] = time.perf_counter() - started
        check_rows(rows, [name])
    return spent


def approve(order: Any) -> None:
    """
    Move one order.
    """
    order.process.approve()


def check_rows(moves: int, ways: Any) -> None:
    """
    Refuse figures whose rows are not all there.

    Raises: WrongResult.
    """
    wanted = (
        moves * len(list(ways)),
        moves * sum(ROWS[name][0] for name in ways),
        moves * sum(ROWS[name][1] for name in ways),
    )
    found = tuple(model._base_manager.count() for model in (StatusChange, OutboxMessage, OutboxDelivery))
    if found != wanted:
        raise WrongResult(f"expected {wanted} history rows, messages and deliveries; found {found}")
