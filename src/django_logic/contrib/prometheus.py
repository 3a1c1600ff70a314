"""
The figures of background work for Prometheus: a collector that looks when it is scraped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, close_old_connections

from django_logic.background.metrics import Snapshot, count_ended, snapshot

try:
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry
except ImportError as error:
    raise ImproperlyConfigured(
        "django_logic.contrib.prometheus needs prometheus_client: pip install 'django-logic[prometheus]'."
    ) from error

__all__ = ["BackgroundCollector", "register"]

logger = logging.getLogger("django-logic.metrics")

#: The name, the words and the labels of each metric.
FAMILIES = {
    "readable": ("Whether the figures of the database could be read.", ()),
    "open_rows": ("Open background rows by queue and by the reason why they do not move.", ("queue", "reason")),
    "oldest_open_row_seconds": ("Age of the oldest open background row; 0 for none.", ("queue",)),
    "ended_rows": ("Background rows that ended within the days they are kept.", ("outcome",)),
    "worker_up": ("Whether a worker was seen within 30 seconds.", ("worker", "host")),
    "worker_seen_seconds": ("How long ago a worker was seen.", ("worker", "host")),
    "worker_listening": ("Whether a worker hears of new rows at once.", ("worker", "host")),
    "worker_claim_seconds": ("How long a worker's last claim took.", ("worker", "host")),
    "held_snapshot_seconds": ("How long a session elsewhere has kept vacuum from its work; 0 for none.", ()),
}


class BackgroundCollector(Collector):
    """
    Expose the figures of some databases; every series has the label ``database``.

    What has ended reads every row that is kept, so it is looked up once in ``ended_every`` seconds.

    Example::

        from django_logic.contrib import prometheus

        prometheus.register()
    """

    def __init__(self, using: Iterable[str] = ("default",), *, ended_every: float = 60.0) -> None:
        self.aliases = (using,) if isinstance(using, str) else tuple(using)
        self.ended_every = ended_every
        self._lock = threading.Lock()
        self._ended: dict[str, tuple[float, dict[str, int]]] = {}

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
                    figures, ended = snapshot(alias, with_ended=False), self.ended(alias)
                except DatabaseError as problem:
                    logger.warning("The figures of background work on %r can't be read: %s", alias, problem)
                    found["readable"].add_metric([alias], 0)
                else:
                    found["readable"].add_metric([alias], 1)
                    fill(found, alias, figures, ended)
        finally:
            close_old_connections()
        yield from found.values()

    def ended(self, alias: str) -> dict[str, int]:
        """
        Count what has ended, or return the count of a moment ago.
        """
        with self._lock:
            taken, counts = self._ended.get(alias, (float("-inf"), {}))
            if time.monotonic() - taken >= self.ended_every:
                counts = {str(state): count for state, count in count_ended(alias).items()}
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


def families() -> dict[str, GaugeMetricFamily]:
    """
    Return every metric without a value.
    """
    return {
        name: GaugeMetricFamily(f"django_logic_{name}", words, labels=("database", *labels))
        for name, (words, labels) in FAMILIES.items()
    }


def fill(found: dict[str, GaugeMetricFamily], alias: str, figures: Snapshot, ended: dict[str, int]) -> None:
    """
    Enter the figures of one database.
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
