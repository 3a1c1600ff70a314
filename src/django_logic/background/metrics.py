"""
One look at the state of background work, for whatever shows figures: Prometheus, OpenTelemetry, a page of your own.

A fixed number of queries. What follows an attempt in time, its span, is in `django_logic.tracing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from django.db.models import Count, Q

from django_logic import conf
from django_logic.background.declared import queues_in_use
from django_logic.background.explain import Code, sessions, tally
from django_logic.background.explain.sessions import oldest_snapshot
from django_logic.background.models import State, TransitionMessage, Worker
from django_logic.background.safety_nets import SEEN_WITHIN
from django_logic.clock import FromNow

__all__ = ["Snapshot", "WorkerFigures", "count_ended", "snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFigures:
    """
    Hold what a worker last said of itself.

    ``is_listening`` is None where its database can't notify; ``claim_seconds`` is how long its last claim took.
    """

    name: str
    host: str
    queues: tuple[str, ...]
    concurrency: int
    seen_seconds: float
    is_alive: bool
    is_listening: bool | None
    claim_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """
    Hold the figures of one database at one moment.

    ``open_rows`` by queue and reason. ``oldest_seconds`` by queue: the age of the oldest open row, 0 for a queue that
    is in use and empty. ``ended`` by outcome: rows that ended within the days they are kept.
    ``held_snapshot_seconds``: how long a session elsewhere has kept vacuum from its work, 0 while none does for over
    a minute.
    """

    open_rows: Mapping[tuple[str, Code], int]
    oldest_seconds: Mapping[str, float]
    ended: Mapping[State, int] = field(default_factory=dict)
    workers: tuple[WorkerFigures, ...] = ()
    held_snapshot_seconds: float = 0.0


def snapshot(using: str = "default", *, with_ended: bool = True) -> Snapshot:
    """
    Take the figures of a database; without ``ended``, which reads every row that is kept, if asked so.
    """
    counts = tally(using=using)
    oldest = dict.fromkeys(queues_in_use(), 0.0)
    for entry in counts:
        oldest[entry.queue] = max(entry.oldest_seconds, oldest.get(entry.queue, 0.0))
    held = oldest_snapshot(using, sessions.SNAPSHOT_SECONDS)
    return Snapshot(
        open_rows={(entry.queue, entry.code): entry.count for entry in counts},
        oldest_seconds=oldest,
        ended=count_ended(using) if with_ended else {},
        workers=workers(using),
        held_snapshot_seconds=held[1].total_seconds() if held is not None else 0.0,
    )


def count_ended(using: str = "default") -> dict[State, int]:
    """
    Count by outcome the rows that ended within the days they are kept; 0 for an outcome nothing had.

    Rows that are kept for longer, as the only explanation of a failed object, are left out.
    """
    since = FromNow(-timedelta(days=conf.cleanup_days()).total_seconds())
    rows = TransitionMessage.objects.using(using).filter(is_completed=True, completed_at__gte=since).order_by()
    found = dict(rows.values_list("outcome").annotate(count=Count("pk")))
    return {state: found.get(state.value, 0) for state in State}


def workers(alias: str) -> tuple[WorkerFigures, ...]:
    """
    Return what workers last said of themselves, those that have ended without a word for up to a day.
    """
    is_alive = Q(last_seen_at__gte=FromNow(-SEEN_WITHIN))
    rows = Worker.objects.using(alias).annotate(now=FromNow(), is_alive=is_alive).order_by("name", "id")
    return tuple(
        WorkerFigures(
            name=worker.name,
            host=worker.host,
            queues=tuple(worker.queues),
            concurrency=worker.concurrency,
            seen_seconds=max(0.0, (worker.now - worker.last_seen_at).total_seconds()),
            is_alive=bool(worker.is_alive),
            is_listening=worker.is_listening,
            claim_seconds=None if worker.claim_ms is None else worker.claim_ms / 1000,
        )
        for worker in rows
    )
