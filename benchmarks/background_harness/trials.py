"""
Measure one engine inside its controller: enqueue, drain, latency, memory, and a deep backlog.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import psycopg
from django.db import connection, transaction
from psycopg import sql

from background_harness.contender import NO_OP, Engine, Profile
from background_harness.fleet import Fleet, fleet
from background_harness.gate import gate
from harness.contender import WrongResult, settle_tables, stage
from harness.statement import bare_connection

GLANCE_SECONDS = 0.01
DRAIN_SECONDS = 400.0
MEMORY_AFTER_SECONDS = 0.25
# A call's end is looked for this often: fine beside ten milliseconds, and leaves a core to the worker.
LATENCY_GLANCE_SECONDS = 0.0005
LATENCY_CALL_SECONDS = 30.0
IDLE_SECONDS = (0.02, 0.06)
BATCH = 500


def enqueue(engine: Engine, jobs: int) -> dict[str, Any]:
    """
    Time calls that commit one by one, with nobody at work.

    Units: seconds.
    """
    _empty(engine)
    orders = stage(engine.order, jobs)
    settle_tables()
    started = time.perf_counter()
    for order in orders:
        engine.enqueue(order, NO_OP)
    return {"seconds": time.perf_counter() - started}


def drain(engine: Engine, jobs: int, children: int, workload: str) -> dict[str, Any]:
    """
    Let that many children work off a backlog; the clock runs from the first claim to the last order that is done.

    Units: seconds and kB.
    """
    prepare(engine, jobs, workload)
    with gate(engine.queue_table) as closed, fleet(engine.programs(children)) as workers:
        closed.wait_for(engine.claimers(children), workers.check)
        started = closed.open()
        pss = 0

        def is_over(session: psycopg.Connection) -> bool:
            nonlocal pss
            # Once, in the midst of the work: some engines have no children before and after.
            if not pss and time.perf_counter() - started > MEMORY_AFTER_SECONDS:
                _, pss = workers.memory()
            return not _is_any_busy(engine, session)

        finished = _wait_for(engine, is_over, workers)
    check(engine, jobs, workload)
    return {"seconds": finished - started, **({"pss": pss} if pss else {})}


def deep(engine: Engine, jobs: int, rows: int) -> dict[str, Any]:
    """
    Time the first jobs of a backlog with that many rows behind them, one child at work.

    Units: seconds.
    """
    prepare(engine, jobs, NO_OP, settles=False)
    engine.fill(rows)
    settle_tables()
    with gate(engine.queue_table) as closed, fleet(engine.programs(1)) as workers:
        closed.wait_for(engine.claimers(1), workers.check)
        started = closed.open()
        finished = _wait_for(engine, lambda session: not _is_any_busy(engine, session), workers)
    _empty(engine)
    return {"seconds": finished - started}


def latency(engine: Engine, calls: int, seconds: float) -> dict[str, Any]:
    """
    Time single calls to an idle worker, from before the call until another session sees the order done.

    Units: milliseconds; fewer than asked for when the time is up.
    """
    _empty(engine)
    orders = stage(engine.order, calls + 1)
    pauses = random.Random(calls)  # noqa: S311 (an order, not a secret)
    found: list[float] = []
    with fleet(engine.programs(1)) as workers, bare_connection(is_prepared=True) as session:
        # The first call waits for the worker to come up and is not counted.
        _timed_call(engine, orders.pop(), session, workers)
        ends = time.monotonic() + seconds
        for order in orders:
            time.sleep(pauses.uniform(*IDLE_SECONDS) + pauses.uniform(0, engine.polls_every))
            found.append(_timed_call(engine, order, session, workers) * 1000)
            if time.monotonic() > ends:
                break
    return {"milliseconds": found}


def memory(engine: Engine, attempts: int, step: int) -> dict[str, Any]:
    """
    Follow the memory of a worker whose child is never replaced.

    Shape: samples of (jobs done, RSS of the process that grew most, PSS of all). Units: kB.
    """
    prepare(engine, attempts, NO_OP)
    samples: list[tuple[int, dict[int, int], int]] = []
    with gate(engine.queue_table) as closed, fleet(engine.programs(1, for_memory=True)) as workers:
        closed.wait_for(engine.claimers(1), workers.check)
        closed.open()

        def sample(session: psycopg.Connection) -> bool:
            done = _count_done(engine, session)
            if done >= (samples[-1][0] if samples else 0) + step or done == attempts:
                samples.append((done, *workers.memory()))
            return done == attempts

        _wait_for(engine, sample, workers, glance=0.1)
    check(engine, attempts, NO_OP)
    (_, first, _), (_, last, _) = samples[0], samples[-1]
    worst = max(first.keys() & last.keys(), key=lambda pid: last[pid] / first[pid])
    return {"samples": [(done, rss.get(worst, 0), pss) for done, rss, pss in samples]}


def extras(*engines: Engine) -> dict[str, Callable[..., dict[str, Any]]]:
    """
    Return what a controller answers for its engines.
    """
    by_key = {engine.key: engine for engine in engines}

    def bound(trial: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        return lambda contender, **arguments: trial(by_key[contender], **arguments)

    trials = (enqueue, drain, deep, latency, memory)
    profiles = {key: engine.profile for key, engine in by_key.items()}
    return {**described(profiles), **{trial.__name__: bound(trial) for trial in trials}}


def described(profiles: Mapping[str, Profile]) -> dict[str, Callable[..., dict[str, Any]]]:
    """
    Return the answer that introduces contenders.
    """
    return {"describe": lambda: {key: asdict(profile) for key, profile in profiles.items()}}


def prepare(engine: Engine, jobs: int, workload: str, *, settles: bool = True) -> None:
    """
    Leave nothing but a backlog of that many jobs, enqueued through the engine's own calls.
    """
    _empty(engine)
    orders = stage(engine.order, jobs)
    # Many calls share a transaction here, since nobody times them.
    for first in range(0, jobs, BATCH):
        with transaction.atomic():
            for order in orders[first : first + BATCH]:
                engine.enqueue(order, workload)
    if settles:
        settle_tables()


def _empty(engine: Engine) -> None:
    names = sql.SQL(", ").join([sql.Identifier(name) for name in (engine.order._meta.db_table, *engine.tables)])
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("TRUNCATE {} CASCADE").format(names))


def _wait_for(
    engine: Engine,
    is_over: Callable[[psycopg.Connection], bool],
    workers: Fleet,
    glance: float = GLANCE_SECONDS,
) -> float:
    deadline = time.monotonic() + DRAIN_SECONDS
    with bare_connection(is_prepared=True) as session:
        while not is_over(session):
            time.sleep(glance)
            workers.check()
            if time.monotonic() > deadline:
                done = _count_done(engine, session)
                raise WrongResult(f"{engine.key}: {done} jobs were done after {DRAIN_SECONDS:.0f} s")
    return time.perf_counter()


def _is_any_busy(engine: Engine, session: psycopg.Connection) -> bool:
    text = sql.SQL("SELECT FROM {} WHERE state = 'processing' LIMIT 1")
    return session.execute(text.format(sql.Identifier(engine.order._meta.db_table))).rowcount > 0


def _count_done(engine: Engine, session: psycopg.Connection) -> int:
    text = sql.SQL("SELECT count(*) FROM {} WHERE state = {}")
    row = session.execute(text.format(sql.Identifier(engine.order._meta.db_table), engine.done)).fetchone()
    return int(row[0]) if row else 0


def _timed_call(engine: Engine, order: Any, session: psycopg.Connection, workers: Fleet) -> float:
    text = sql.SQL("SELECT state FROM {} WHERE id = %s").format(sql.Identifier(engine.order._meta.db_table))
    started = time.perf_counter()
    engine.enqueue(order, NO_OP)
    while (row := session.execute(text, [order.pk]).fetchone()) is None or row[0] != engine.done:
        time.sleep(LATENCY_GLANCE_SECONDS)
        if time.perf_counter() - started > LATENCY_CALL_SECONDS:
            workers.check()
            raise WrongResult(f"{engine.key}: a call was not done after {LATENCY_CALL_SECONDS:.0f} s")
    return time.perf_counter() - started


def check(engine: Engine, jobs: int, workload: str) -> None:
    """
    Refuse a figure whose rows are not all there.

    Raises: WrongResult.
    """
    wanted = {engine.order: jobs, **engine.records(jobs, workload)}
    for model, count in wanted.items():
        rows = model._base_manager.filter(state=engine.done) if model is engine.order else model._base_manager.all()
        if (found := rows.count()) != count:
            raise WrongResult(f"{engine.key}: expected {count} rows of {model.__name__}, found {found}")
