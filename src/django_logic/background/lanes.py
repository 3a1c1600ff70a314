"""
The index ranges a worker looks into, a queue and a priority each, and from which time on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

from django.db import connections

from django_logic.background.models import NEVER, Cancellation, TransitionMessage

__all__ = ["BEGINNING", "Lane", "Lanes", "array_of", "composed", "lanes_of", "next_due"]

#: Before any row.
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

#: When the next row that is not due yet comes due.
NEXT_DUE = """
SELECT EXTRACT(EPOCH FROM MIN(head.run_at) - STATEMENT_TIMESTAMP())
FROM UNNEST(%(queues)s::varchar[], %(priorities)s::smallint[]) AS lane (queue_name, priority)
CROSS JOIN LATERAL (
    SELECT candidate.run_at FROM {table} candidate
    WHERE NOT candidate.is_completed AND candidate.queue_name = lane.queue_name AND candidate.priority = lane.priority
        AND candidate.run_at > STATEMENT_TIMESTAMP()
    ORDER BY candidate.run_at LIMIT 1
) head
"""

#: Which priorities wait in a queue, one index probe for each.
PRIORITIES = """
WITH RECURSIVE found AS (
    SELECT wanted.queue_name, (
        SELECT MIN(priority) FROM {table} WHERE NOT is_completed AND queue_name = wanted.queue_name
    ) AS priority FROM UNNEST(%(queues)s::varchar[]) AS wanted (queue_name)
    UNION ALL
    SELECT found.queue_name, (
        SELECT MIN(priority) FROM {table}
        WHERE NOT is_completed AND queue_name = found.queue_name AND priority > found.priority
    ) FROM found WHERE found.priority IS NOT NULL
)
SELECT queue_name, priority FROM found WHERE priority IS NOT NULL
"""
QUEUES = """
WITH RECURSIVE found AS (
    SELECT MIN(queue_name) AS queue_name FROM {table} WHERE NOT is_completed
    UNION ALL
    SELECT (SELECT MIN(queue_name) FROM {table} WHERE NOT is_completed AND queue_name > found.queue_name)
    FROM found WHERE found.queue_name IS NOT NULL
)
SELECT queue_name FROM found WHERE queue_name IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Lane:
    """
    Name one index range that claims look into.
    """

    queue: str
    priority: int


@dataclass(slots=True)
class Lanes:
    """
    Hold the lanes a worker serves, and below which time each need not be searched.

    The floor keeps claims away from the dead rows that a long transaction elsewhere stops vacuum from removing;
    rows that were committed late lie below it, so `lift` is due once a second.
    """

    lanes: Sequence[Lane]
    floors: list[datetime] = field(default_factory=list)
    _queues: str = field(init=False, default="")
    _priorities: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.lift()
        self._queues = array_of(lane.queue for lane in self.lanes)
        self._priorities = array_of(lane.priority for lane in self.lanes)

    def lift(self) -> bool:
        """
        Search everything again; return whether anything was left out.
        """
        was_bounded = any(floor != BEGINNING for floor in self.floors)
        self.floors = [BEGINNING] * len(self.lanes)
        return was_bounded

    def arrays(self) -> dict[str, str]:
        """
        Return the parameters of a search: queues, priorities and floors.
        """
        return {"queues": self._queues, "priorities": self._priorities, "floors": array_of(self.floors)}


def array_of(values: Iterable[Any]) -> str:
    """
    Write an array as PostgreSQL reads it; a driver takes longer to write one than the database to search it.
    """
    escaped = (str(value).replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{text}"' for text in escaped) + "}"


@cache
def names() -> dict[str, str]:
    """
    Return the quoted names statements are composed of.
    """
    options, others = TransitionMessage._meta, Cancellation._meta
    return {
        "table": f'"{options.db_table}"',
        "never": NEVER.isoformat(),
        "cancellations": f'"{others.db_table}"',
        "columns": ", ".join(f'm."{entry.column}"' for entry in options.concrete_fields),
    }


@cache
def composed(statement: str, taken: str = "", quiet: str = "", reading: str = "") -> str:
    """
    Return a statement with its names, what a claim writes, and what is read with a row, filled in.
    """
    return statement.format(**names(), taken=taken, quiet=quiet, reading=reading)


def next_due(alias: str, lanes: Lanes) -> float | None:
    """
    Return in how many seconds the next row comes due, None when none waits.
    """
    if not lanes.lanes:
        return None
    if connections[alias].vendor != "postgresql":
        return None
    with connections[alias].cursor() as cursor:
        cursor.execute(composed(NEXT_DUE), lanes.arrays())
        (seconds,) = cursor.fetchone()
    return None if seconds is None else max(0.0, float(seconds))


def lanes_of(alias: str, queues: Sequence[str] | None, declared: Iterable[Lane] = ()) -> Lanes:
    """
    Find the lanes of queues, of all queues for None: the declared ones and those in which rows wait.
    """
    found = {lane for lane in declared if queues is None or lane.queue in queues}
    if connections[alias].vendor != "postgresql":
        rows = TransitionMessage.objects.using(alias).open()
        if queues is not None:
            rows = rows.filter(queue_name__in=queues)
        waiting = set(rows.order_by().values_list("queue_name", "priority").distinct())
    else:
        waiting = set()
        with connections[alias].cursor() as cursor:
            if queues is None:
                cursor.execute(composed(QUEUES))
                queues = [name for (name,) in cursor.fetchall()]
            cursor.execute(composed(PRIORITIES), {"queues": list(queues)})
            waiting = set(cursor.fetchall())
    found |= {Lane(queue, priority) for queue, priority in waiting}
    return Lanes(sorted(found, key=lambda lane: (lane.priority, lane.queue)))
