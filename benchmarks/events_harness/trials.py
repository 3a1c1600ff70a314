"""
Measure one outbox inside its controller: what relays deliver in a second, and how soon.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import Any

import psycopg
from django.db import connections

from background_harness.contender import Program
from background_harness.fleet import Fleet, fleet
from background_harness.gate import Gate
from events_harness.outbox import Outbox
from events_harness.received import FileReceiver, Receiver, receiver
from events_harness.turns import empty, settle
from harness.contender import WrongResult, stage

GLANCE_SECONDS = 0.005
DRAIN_SECONDS = 60.0
WARM_UP_MOVES = 5


def drain(
    outbox: Outbox,
    *,
    events: int,
    relays: int,
    is_hot: bool = False,
    stream_url: str | None = None,
    alias: str = "default",
    keeps: str = "",
) -> dict[str, Any]:
    """
    Let that many relays deliver what waits; the clock runs from the first claim to the last arrival.

    Where claims lock nothing it runs from the first arrival. What is there is kept for ``keeps="sent"``; of a backlog
    that is there already, ``keeps="pending"``, so many are waited for. Units: seconds.
    """
    if not keeps:
        empty(alias, outbox.tables)
    if keeps != "pending":
        outbox.write(alias, events, is_hot=is_hot, to_stream=stream_url is not None)
    settle(alias)
    with receiver(stream_url) as arriving, ExitStack() as stack:
        started = None
        with session(alias) as holder:
            closed = Gate(holder, outbox.queue_table) if outbox.queue_table else None
            running = stack.enter_context(fleet(told(outbox, relays, alias, arriving)))
            if closed is not None:
                closed.wait_for(relays, running.check)
                started = closed.open()
        first = wait_for(arriving, 1, running)
        wait_for(arriving, events, running)
        if keeps != "pending":
            arriving.check(events, is_hot=is_hot)
        return {"seconds": arriving.finished() - (first if started is None else started)}


def lag(outbox: Outbox, *, moves: int, low: float, high: float) -> dict[str, Any]:
    """
    Time from the commit of single moves to their subscriber, one relay at work, pauses between moves at random.

    With equal bounds moves keep that pace. Units: milliseconds.
    """
    empty("default", outbox.tables)
    orders = stage(outbox.order, WARM_UP_MOVES + moves)
    settle()
    committed: dict[int, int] = {}
    pauses = random.Random(moves)  # noqa: S311 (pauses, not secrets)
    with receiver(None) as arriving, fleet(told(outbox, 1, "default", arriving)) as running:
        for number, order in enumerate(orders[:WARM_UP_MOVES], 1):
            outbox.move(order)
            wait_for(arriving, number, running)
        due = time.perf_counter()
        for order in orders[WARM_UP_MOVES:]:
            due = max(due + pauses.uniform(low, high), time.perf_counter() - high)
            time.sleep(max(0.0, due - time.perf_counter()))
            committed[order.pk] = outbox.move(order)
        wait_for(arriving, len(orders), running)
        assert isinstance(arriving, FileReceiver)
        arrivals = arriving.arrivals()
    return {"milliseconds": [(arrivals[pk] - moment) / 1e6 for pk, moment in committed.items()]}


def told(outbox: Outbox, relays: int, alias: str, arriving: Receiver) -> list[Program]:
    """
    Return relays that know where to deliver.
    """
    return [
        replace(program, environment={**program.environment, **arriving.environment()})
        for program in outbox.programs(relays, alias)
    ]


def wait_for(arriving: Receiver, events: int, running: Fleet) -> float:
    """
    Wait for arrivals; return when they were seen.

    Raises: WrongResult.
    """
    deadline = time.monotonic() + DRAIN_SECONDS
    while (found := arriving.count()) < events:
        running.check()
        if time.monotonic() > deadline:
            raise WrongResult(f"{found} events of {events} have arrived after {DRAIN_SECONDS:.0f} s")
        time.sleep(GLANCE_SECONDS)
    return time.perf_counter()


@contextmanager
def session(alias: str) -> Iterator[psycopg.Connection]:
    """
    Open a connection outside Django to one of its databases.
    """
    database = connections[alias].settings_dict
    with psycopg.connect(
        host=database["HOST"],
        port=database["PORT"],
        user=database["USER"],
        dbname=database["NAME"],
        autocommit=True,
        cursor_factory=psycopg.ClientCursor,
    ) as found:
        yield found


def extras(*outboxes: Outbox) -> dict[str, Callable[..., dict[str, Any]]]:
    """
    Return what a controller answers for its outboxes.
    """
    by_key = {outbox.key: outbox for outbox in outboxes}
    return {
        "describe": lambda: {key: asdict(outbox.profile) for key, outbox in by_key.items()},
        "drain": lambda contender, **arguments: drain(by_key[contender], **arguments),
        "lag": lambda contender, **arguments: lag(by_key[contender], **arguments),
    }
