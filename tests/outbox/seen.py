"""
Keep what relays delivered in a table of the test database, in the order it was seen.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from django_logic.outbox import Event

CREATE = """
CREATE TABLE dl_test_seen (
    id BIGSERIAL PRIMARY KEY, destination TEXT, event UUID, topic TEXT, key TEXT, sequence BIGINT, attempt INT, pid INT,
    at TIMESTAMPTZ DEFAULT CLOCK_TIMESTAMP()
)
"""
DROP = "DROP TABLE IF EXISTS dl_test_seen"
INSERT = """
INSERT INTO dl_test_seen (destination, event, topic, key, sequence, attempt, pid) VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
SELECT = "SELECT destination, event, topic, key, sequence, attempt, pid, at FROM dl_test_seen ORDER BY id"
CLOCK = "SELECT CLOCK_TIMESTAMP()"
LOCAL = "subscribers"


class Sight(NamedTuple):
    """
    Hold one call: which event reached which destination, at which attempt, in which process, when.
    """

    destination: str
    event: UUID
    topic: str
    key: str
    sequence: int
    attempt: int
    pid: int
    at: datetime


@contextmanager
def table_of_sights() -> Iterator[None]:
    """
    Make the table, and drop it with the block.
    """
    with connection.cursor() as cursor:
        cursor.execute(DROP)
        cursor.execute(CREATE)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(DROP)


def note(event: Event, destination: str = LOCAL) -> None:
    """
    Write down that an event was delivered, at once and for good.
    """
    values = (destination, event.id, event.topic, event.key, event.sequence, event.attempt, os.getpid())
    with connection.cursor() as cursor:
        cursor.execute(INSERT, values)


def sights(destination: str = LOCAL, key: object = None) -> list[Sight]:
    """
    List what was delivered, the first one first.
    """
    with connection.cursor() as cursor:
        cursor.execute(SELECT)
        found = [Sight(*row) for row in cursor.fetchall()]
    return [sight for sight in found if sight.destination == destination and key in (None, sight.key)]


def sequences(key: object, destination: str = LOCAL) -> list[int]:
    """
    List the sequences of one object as they were seen.
    """
    return [sight.sequence for sight in sights(destination) if sight.key == str(key)]


def overtaking(seen: Sequence[Sight]) -> list[Sight]:
    """
    List the sights that came before an earlier event of their object had ever been seen.
    """
    reached: Counter[tuple[str, str]] = Counter()
    found = []
    for sight in seen:
        place = sight.destination, sight.key
        if sight.sequence > reached[place] + 1:
            found.append(sight)
        reached[place] = max(reached[place], sight.sequence)
    return found


def now() -> datetime:
    """
    Return the time of the database's clock.
    """
    with connection.cursor() as cursor:
        cursor.execute(CLOCK)
        moment: datetime = cursor.fetchone()[0]
    return moment
