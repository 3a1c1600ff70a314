"""
One look at the state of events, for whatever shows figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from django.db.models import Count, Min

from django_logic.clock import FromNow
from django_logic.outbox import destinations
from django_logic.outbox.models import DeliveryState, OutboxDelivery, OutboxTally

__all__ = ["DestinationFigures", "figures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationFigures:
    """
    Hold the figures of one destination.

    ``pending`` counts what waits or is being published, behind dead ones too; ``oldest_seconds`` is the age of the
    oldest of them, 0 for none. ``attempts`` counts them by fate since the tables were made.
    """

    destination: str
    pending: int
    oldest_seconds: float
    dead: int
    attempts: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """
        Return the figures as JSON takes them.
        """
        return asdict(self)


def figures(using: str = "default") -> list[DestinationFigures]:
    """
    Count what waits and what is dead, in a fixed number of queries that read no row which was sent.
    """
    rows = OutboxDelivery.objects.using(using).order_by()
    waiting = rows.filter(is_open=True, state__in=[DeliveryState.PENDING, DeliveryState.LEASED])
    counted = waiting.values("destination").annotate(pending=Count("pk"), oldest=Min("created"), now=FromNow())
    found = {entry["destination"]: entry for entry in counted}
    dead = dict(rows.filter(state=DeliveryState.DEAD).values_list("destination").annotate(count=Count("pk")))
    tally: dict[str, dict[str, int]] = {}
    for entry in OutboxTally.objects.using(using).order_by("fate"):
        tally.setdefault(entry.destination, {})[entry.fate] = entry.count
    return [
        figures_of(name, found.get(name), dead.get(name, 0), tally.get(name, {}))
        for name in dict.fromkeys([*destinations.names(), *sorted(found), *sorted(dead), *sorted(tally)])
    ]


def figures_of(
    name: str, waiting: Mapping[str, Any] | None, dead: int, attempts: Mapping[str, int]
) -> DestinationFigures:
    """
    Return the figures of one destination.
    """
    pending, age = 0, 0.0
    if waiting is not None:
        pending, age = waiting["pending"], max(0.0, (waiting["now"] - waiting["oldest"]).total_seconds())
    return DestinationFigures(destination=name, pending=pending, oldest_seconds=age, dead=dead, attempts=attempts)
