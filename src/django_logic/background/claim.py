"""
Claiming: one committed statement takes the row that is due first and counts the attempt before it begins.

PostgreSQL probes each lane, a queue and a priority, by one index range. Other databases do the same through the ORM.
What is *not* done here: running or ending anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from functools import cache
from typing import Any, NamedTuple
from uuid import uuid4

from django.db import connections

from django_logic import conf
from django_logic.background.claim_elsewhere import due, is_held, take_first, unclaimed
from django_logic.background.lanes import Lanes, array_of, composed
from django_logic.background.models import TransitionMessage
from django_logic.reads import Reading, compiled, converted, read_row

__all__ = ["Held", "TokenLost", "hold", "take", "take_next"]

#: How long a claim keeps a row before its attempt holds the lock; seconds.
LEASE = 10.0

#: What a claim writes; the limit is the project's number of attempts. What rarely changes is written out, since every
#: parameter of every claim costs time.
TAKEN = """
    attempts_started = m.attempts_started
        + CASE WHEN m.attempts_started < COALESCE(m.max_errors, {limit}) THEN 1 ELSE 0 END,
    errors_count = CASE WHEN m.attempts_started > m.errors_count THEN m.attempts_started ELSE m.errors_count END,
    last_error_dt = CASE WHEN m.attempts_started > m.errors_count THEN STATEMENT_TIMESTAMP() ELSE m.last_error_dt END,
    last_error_message = CASE WHEN m.attempts_started > m.errors_count THEN '{lost}' ELSE m.last_error_message END,
    claim_token = %(token)s, worker = %(worker)s, backend_pid = PG_BACKEND_PID(), code_version = %(code_version)s,
    started_at = STATEMENT_TIMESTAMP(), modified = STATEMENT_TIMESTAMP(),
    run_at = STATEMENT_TIMESTAMP() + {lease} * INTERVAL '1 second'
"""

#: The first row that is due in any lane. A durable row waits while an earlier one of its object is open and not spent.
#: Losing this commit in a crash of the server costs one uncounted attempt, so it does not wait for the disk.
TAKE_NEXT = """
WITH picked AS MATERIALIZED (
    SELECT head.id, head.run_at, lane.place FROM UNNEST(
        %(queues)s::varchar[], %(priorities)s::smallint[], %(floors)s::timestamptz[]
    ) WITH ORDINALITY AS lane (queue_name, priority, floor, place)
    CROSS JOIN LATERAL (
        SELECT candidate.id, candidate.run_at, candidate.priority FROM {table} candidate
        WHERE NOT candidate.is_completed AND candidate.queue_name = lane.queue_name
            AND candidate.priority = lane.priority
            AND candidate.run_at <= STATEMENT_TIMESTAMP() AND candidate.run_at >= lane.floor
            AND candidate.id <> ALL (%(besides)s::bigint[])
            AND (candidate.kind = 'transition' OR NOT EXISTS (
                SELECT FROM {table} earlier
                WHERE earlier.instance_id = candidate.instance_id AND earlier.model_name = candidate.model_name
                    AND earlier.app_label = candidate.app_label AND earlier.process_name = candidate.process_name
                    AND NOT earlier.is_completed AND earlier.kind <> 'transition' AND earlier.id < candidate.id
                    AND earlier.run_at < '{never}'
            ))
        ORDER BY candidate.run_at, candidate.id LIMIT 1 FOR UPDATE OF candidate SKIP LOCKED
    ) head
    ORDER BY head.priority, head.run_at, head.id LIMIT 1
)
UPDATE {table} m SET {taken}
FROM picked{quiet}
WHERE m.id = picked.id
RETURNING {columns}, picked.run_at, picked.place
"""

#: Makes the commit of this statement not wait for the disk; in an open transaction it would speak for all of it.
QUIET = ", (SELECT SET_CONFIG('synchronous_commit', 'off', true)) quiet"

#: One row, whatever its queue and its time, unless somebody holds it by a lock or a claim.
TAKE = """
WITH picked AS MATERIALIZED (
    SELECT id FROM {table} WHERE id = %(pk)s AND NOT is_completed
        AND (claim_token IS NULL OR run_at <= STATEMENT_TIMESTAMP())
    FOR UPDATE SKIP LOCKED
)
UPDATE {table} m SET {taken} FROM picked WHERE m.id = picked.id RETURNING {columns}
"""

#: The lock that says "running", taken by the claim's token; it waits, since a competing claim may hold it an instant.
HOLD = """
SELECT EXISTS (SELECT FROM {cancellations} WHERE message_id = m.id) FROM {table} m
WHERE m.id = %s AND m.claim_token = %s AND NOT m.is_completed FOR NO KEY UPDATE OF m
"""

#: The same, with the object the row is about. Who changes it together with the row holds the row's lock meanwhile, so a
#: snapshot that is older than the wait shows no object that went with this row to its end.
HOLD_AND_READ = """
SELECT EXISTS (SELECT FROM {cancellations} WHERE message_id = m.id), target.*
FROM {table} m LEFT JOIN ({reading}) target ON true
WHERE m.id = %s AND m.claim_token = %s AND NOT m.is_completed FOR NO KEY UPDATE OF m
"""

LOST = "[lost] the attempt before this one began and left no record: its process or its machine died."


@cache
def taken(limit: int, lease: float) -> str:
    """
    Return what a claim writes.
    """
    return TAKEN.format(limit=limit, lease=lease, lost=LOST)


class TokenLost(Exception):
    """
    The row is another one's by now, or has ended: whatever this attempt did must not be kept.
    """


def claimant(worker: str, code_version: str) -> dict[str, Any]:
    """
    Return the parameters every claim has.
    """
    return {
        "token": uuid4(),
        "worker": (worker or f"process {os.getpid()}")[:255],
        "code_version": code_version[:100],
        "lease": LEASE,
        "lost": LOST,
    }


def take_next(
    alias: str, lanes: Lanes, *, worker: str = "", code_version: str = "", besides: Collection[int] = ()
) -> TransitionMessage | None:
    """
    Claim the row that is due first, ``besides`` some; None when none is.

    Transaction: commits by itself; within an open one it counts when that commits.
    """
    if not lanes.lanes:
        return None
    if connections[alias].vendor != "postgresql":
        return take_first(alias, due(alias, lanes.lanes).exclude(pk__in=besides), claimant(worker, code_version))
    parameters = {**claimant(worker, code_version), **lanes.arrays(), "besides": array_of(besides)}
    quiet = "" if connections[alias].in_atomic_block else QUIET
    with connections[alias].cursor() as cursor:
        cursor.execute(composed(TAKE_NEXT, taken(conf.max_errors(), LEASE), quiet), parameters)
        row = cursor.fetchone()
    if row is None:
        return None
    *values, run_at, place = row
    lanes.floors[place - 1] = run_at
    return as_message(alias, values)


def take(alias: str, pk: int, *, worker: str = "", code_version: str = "") -> TransitionMessage | None:
    """
    Claim one row whatever its queue and its time; None when it has ended, or somebody holds it or has just claimed it.

    Transaction: as `take_next`.
    """
    parameters = claimant(worker, code_version)
    if connections[alias].vendor != "postgresql":
        return take_first(alias, unclaimed(alias, pk), parameters)
    with connections[alias].cursor() as cursor:
        cursor.execute(composed(TAKE, taken(conf.max_errors(), LEASE)), {**parameters, "pk": pk})
        row = cursor.fetchone()
    return None if row is None else as_message(alias, list(row))


def as_message(alias: str, values: list[Any]) -> TransitionMessage:
    """
    Make a message of a row that a statement returned.
    """
    attributes = [entry.attname for entry in TransitionMessage._meta.concrete_fields]
    place = attributes.index("kwargs")
    if isinstance(values[place], str):
        values[place] = json.loads(values[place])
    return TransitionMessage.from_db(alias, attributes, values)


class Held(NamedTuple):
    """
    Say whether somebody asked to cancel a row that is held, and give what was read with it.
    """

    is_cancelled: bool
    row: Any = None


def hold(message: TransitionMessage, alias: str, reading: Reading | None = None) -> Held:
    """
    Lock a claimed row until the transaction ends, and read its object in the same round trip.

    Transaction: needs the caller's. Raises: TokenLost when the claim is not ours any more.
    """
    connection = connections[alias]
    if connection.vendor != "postgresql":
        is_cancelled = is_held(message, alias)
        if is_cancelled is None:
            raise TokenLost
        return Held(is_cancelled, None if reading is None else read_row(alias, reading))
    if reading is None:
        statement, converters = composed(HOLD), None
        parameters = [message.pk, message.claim_token]
    else:
        sql, converters = compiled(connection, reading)
        statement = composed(HOLD_AND_READ, reading=sql)
        parameters = [reading.parameter(connection), message.pk, message.claim_token]
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        found = cursor.fetchone()
    if found is None:
        raise TokenLost
    is_cancelled, *row = found
    return Held(is_cancelled, converted(connection, converters, row) if row else None)
