"""
What is observed: how each figure of background work and of events is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django_logic.contrib.opentelemetry.observing import Instrument, Reading

if TYPE_CHECKING:
    from django_logic.background.metrics import Snapshot
    from django_logic.outbox.metrics import DestinationFigures

__all__ = ["OF_BACKGROUND", "OF_EVENTS"]


def open_rows(figures: Snapshot) -> Reading:
    """
    Read how many rows are open.
    """
    for (queue, code), count in figures.open_rows.items():
        yield count, {"queue": queue, "reason": str(code)}


def oldest(figures: Snapshot) -> Reading:
    """
    Read how old the oldest open rows are.
    """
    for queue, seconds in figures.oldest_seconds.items():
        yield seconds, {"queue": queue}


def ended(figures: Snapshot) -> Reading:
    """
    Read how many rows have ended how.
    """
    for outcome, count in figures.ended.items():
        yield count, {"outcome": str(outcome)}


def of_workers(attribute: str) -> Callable[[Snapshot], Reading]:
    """
    Make what reads one figure of each worker.
    """

    def read(figures: Snapshot) -> Reading:
        for worker in figures.workers:
            value = getattr(worker, attribute)
            if value is not None:
                yield float(value), {"worker": worker.name, "host": worker.host}

    return read


def held_snapshot(figures: Snapshot) -> Reading:
    """
    Read how long vacuum has been kept from its work.
    """
    yield figures.held_snapshot_seconds, {}


def of_destinations(attribute: str) -> Callable[[Sequence[DestinationFigures]], Reading]:
    """
    Make what reads one figure of each destination.
    """

    def read(figures: Sequence[DestinationFigures]) -> Reading:
        for entry in figures:
            yield getattr(entry, attribute), {"destination": entry.destination}

    return read


def attempts(figures: Sequence[DestinationFigures]) -> Reading:
    """
    Read how many attempts have ended how.
    """
    for entry in figures:
        for fate, count in entry.attempts.items():
            yield count, {"destination": entry.destination, "fate": fate}


OF_BACKGROUND: tuple[Instrument[Snapshot], ...] = (
    Instrument(
        "open_rows", "{row}", "Open background rows by queue and by the reason why they do not move.", open_rows
    ),
    Instrument("oldest_open_row", "s", "Age of the oldest open background row; 0 for none.", oldest),
    Instrument("ended_rows", "{row}", "Background rows that ended within the days they are kept.", ended),
    Instrument("worker.up", "1", "Whether a worker was seen within 30 seconds.", of_workers("is_alive")),
    Instrument("worker.seen", "s", "How long ago a worker was seen.", of_workers("seen_seconds")),
    Instrument("worker.listening", "1", "Whether a worker hears of new rows at once.", of_workers("is_listening")),
    Instrument("worker.claim", "s", "How long a worker's last claim took.", of_workers("claim_seconds")),
    Instrument(
        "held_snapshot", "s", "How long a session elsewhere has kept vacuum from its work; 0 for none.", held_snapshot
    ),
)

OF_EVENTS: tuple[Instrument[Sequence[DestinationFigures]], ...] = (
    Instrument(
        "outbox.pending",
        "{event}",
        "Events that wait for their delivery, those behind dead ones included.",
        of_destinations("pending"),
    ),
    Instrument(
        "outbox.oldest_pending", "s", "Age of the oldest pending event; 0 for none.", of_destinations("oldest_seconds")
    ),
    Instrument(
        "outbox.dead", "{event}", "Events that are given up until somebody replays them.", of_destinations("dead")
    ),
    Instrument(
        "outbox.attempts", "{attempt}", "Attempts to deliver events, by how they ended.", attempts, is_counter=True
    ),
)
