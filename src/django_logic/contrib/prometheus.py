"""
The figures of background work and events for Prometheus: a collector that looks when it is scraped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, close_old_connections

from django_logic.contrib import sources

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry
except ImportError as error:
    raise ImproperlyConfigured(
        "django_logic.contrib.prometheus needs prometheus_client: pip install 'django-logic[prometheus]'."
    ) from error

if TYPE_CHECKING:
    from django_logic.background.metrics import Snapshot
    from django_logic.outbox.metrics import DestinationFigures

__all__ = ["BackgroundCollector", "register"]

logger = logging.getLogger("django-logic.metrics")

Family: TypeAlias = GaugeMetricFamily | CounterMetricFamily
Words: TypeAlias = tuple[str, tuple[str, ...]]

#: The name, the words and the labels of each metric.
ALWAYS: dict[str, Words] = {"readable": ("Whether the figures of the database could be read.", ())}
OF_BACKGROUND: dict[str, Words] = {
    "open_rows": ("Open background rows by queue and by the reason why they do not move.", ("queue", "reason")),
    "oldest_open_row_seconds": ("Age of the oldest open background row; 0 for none.", ("queue",)),
    "ended_rows": ("Background rows that ended within the days they are kept.", ("outcome",)),
    "worker_up": ("Whether a worker was seen within 30 seconds.", ("worker", "host")),
    "worker_seen_seconds": ("How long ago a worker was seen.", ("worker", "host")),
    "worker_listening": ("Whether a worker hears of new rows at once.", ("worker", "host")),
    "worker_claim_seconds": ("How long a worker's last claim took.", ("worker", "host")),
    "held_snapshot_seconds": ("How long a session elsewhere has kept vacuum from its work; 0 for none.", ()),
}
OF_EVENTS: dict[str, Words] = {
    "outbox_pending": ("Events that wait for their delivery, those behind dead ones included.", ("destination",)),
    "outbox_oldest_pending_seconds": ("Age of the oldest pending event; 0 for none.", ("destination",)),
    "outbox_dead": ("Events that are given up until somebody replays them.", ("destination",)),
    "outbox_attempts": ("Attempts to deliver events, by how they ended.", ("destination", "fate")),
}
#: What only grows.
COUNTERS = ("outbox_attempts",)


class BackgroundCollector(Collector):
    """
    Expose the figures of some databases; every series has the label ``database``.

    There are series of what is installed: `django_logic.background`, `django_logic.outbox`. What has ended reads every
    row that is kept, so it is looked up once in ``ended_every`` seconds.

    Example::

        from django_logic.contrib import prometheus

        prometheus.register()
    """

    def __init__(self, using: Iterable[str] = ("default",), *, ended_every: float = 60.0) -> None:
        self.aliases = (using,) if isinstance(using, str) else tuple(using)
        self.ended_every = ended_every
        self._lock = threading.Lock()
        self._ended: dict[str, tuple[float, Mapping[str, int]]] = {}

    def describe(self) -> Iterable[Metric]:
        """
        Name the metrics without a look into any database.
        """
        return list(families().values())

    def collect(self) -> Iterator[Metric]:
        """
        Look into the databases.
        """
        found = families()
        close_old_connections()
        try:
            for alias in self.aliases:
                try:
                    figures, ended = sources.of_background(alias, with_ended=False), self.ended(alias)
                    events = sources.of_events(alias)
                except DatabaseError as problem:
                    logger.warning("The figures of %r can't be read: %s", alias, problem)
                    found["readable"].add_metric([alias], 0)
                    continue
                found["readable"].add_metric([alias], 1)
                if figures is not None:
                    fill(found, alias, figures, ended)
                fill_events(found, alias, events)
        finally:
            close_old_connections()
        yield from found.values()

    def ended(self, alias: str) -> Mapping[str, int]:
        """
        Count what has ended, or return the count of a moment ago.
        """
        with self._lock:
            taken, counts = self._ended.get(alias, (float("-inf"), {}))
            if time.monotonic() - taken >= self.ended_every:
                counts = sources.ended_rows(alias)
                self._ended[alias] = (time.monotonic(), counts)
            return counts


def register(using: Iterable[str] = ("default",), registry: CollectorRegistry = REGISTRY) -> BackgroundCollector:
    """
    Make a collector known to a registry, the one that is exposed by default.

    Raises: ValueError where the registry has one already.
    """
    collector = BackgroundCollector(using)
    registry.register(collector)
    return collector


def families() -> dict[str, Family]:
    """
    Return every metric of what is installed, without a value.
    """
    known = ALWAYS
    for app, words in ((sources.BACKGROUND, OF_BACKGROUND), (sources.EVENTS, OF_EVENTS)):
        known = known | (words if sources.are_installed(app) else {})
    return {
        name: (CounterMetricFamily if name in COUNTERS else GaugeMetricFamily)(
            f"django_logic_{name}", words, labels=("database", *labels)
        )
        for name, (words, labels) in known.items()
    }


def fill(found: Mapping[str, Family], alias: str, figures: Snapshot, ended: Mapping[str, int]) -> None:
    """
    Enter the figures of background work in one database.
    """

    def enter(name: str, value: float | None, labels: Sequence[str] = ()) -> None:
        if value is not None:
            found[name].add_metric([alias, *labels], float(value))

    for (queue, code), count in figures.open_rows.items():
        enter("open_rows", count, (queue, str(code)))
    for queue, seconds in figures.oldest_seconds.items():
        enter("oldest_open_row_seconds", seconds, (queue,))
    for outcome, count in ended.items():
        enter("ended_rows", count, (outcome,))
    for worker in figures.workers:
        labels = (worker.name, worker.host)
        enter("worker_up", worker.is_alive, labels)
        enter("worker_seen_seconds", worker.seen_seconds, labels)
        enter("worker_listening", worker.is_listening, labels)
        enter("worker_claim_seconds", worker.claim_seconds, labels)
    enter("held_snapshot_seconds", figures.held_snapshot_seconds)


def fill_events(found: Mapping[str, Family], alias: str, figures: Sequence[DestinationFigures]) -> None:
    """
    Enter the figures of events in one database.
    """
    for entry in figures:
        labels = [alias, entry.destination]
        found["outbox_pending"].add_metric(labels, entry.pending)
        found["outbox_oldest_pending_seconds"].add_metric(labels, entry.oldest_seconds)
        found["outbox_dead"].add_metric(labels, entry.dead)
        for fate, count in entry.attempts.items():
            found["outbox_attempts"].add_metric([*labels, fate], count)
