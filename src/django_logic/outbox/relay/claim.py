"""
Claiming: one committed statement leases the head of each key, and what follows it, under one token.

The open rows of a destination are walked key by key, one index probe each, from where the last claim ended. So nothing
of a key is ever taken while an older row of it is open, however many relays there are, and rows that were committed
late are found. What is *not* done here: delivering and marking.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from django.db import connections, models, transaction
from django.db.models import F, Min, Q

from django_logic.clock import FromNow
from django_logic.locks import take_write_lock
from django_logic.outbox import options
from django_logic.outbox.event import Event
from django_logic.outbox.models import DeliveryState, OutboxDelivery, OutboxMessage

__all__ = ["BEGINNING", "Claim", "Item", "Place", "claim"]

#: The app and model, and the key, that name one order.
Place = tuple[str, str]
Deliveries = models.QuerySet[OutboxDelivery]
#: Before any key.
BEGINNING: Place = ("", "")
#: How many keys are looked at together where no statement walks them: at first, and at most.
FIRST_LOOK, LONGEST_LOOK = 500, 8000
#: The states a row may be claimed in, once it is due; a leased one is due when its lease is over.
CLAIMABLE = (DeliveryState.PENDING, DeliveryState.LEASED)

#: Heads are due rows that are the oldest open ones of their keys. One whose last relay may have died with it is taken
#: alone, without other keys too, so that a message that kills its relay spends no attempts but its own. Losing this
#: commit in a crash of the server costs one lease, so it does not wait for the disk.
CLAIM = """
WITH RECURSIVE walk AS (
    (
        SELECT aggregate, key, id, state, next_attempt_at FROM {deliveries}
        WHERE is_open AND destination = %(destination)s AND (aggregate, key) > (%(aggregate)s, %(key)s)
        ORDER BY aggregate, key, id LIMIT 1
    )
    UNION ALL
    SELECT following.* FROM walk CROSS JOIN LATERAL (
        SELECT aggregate, key, id, state, next_attempt_at FROM {deliveries}
        WHERE is_open AND destination = %(destination)s AND (aggregate, key) > (walk.aggregate, walk.key)
        ORDER BY aggregate, key, id LIMIT 1
    ) following
), found AS MATERIALIZED (
    SELECT aggregate, key, id, state FROM walk
    WHERE state <> 'dead' AND next_attempt_at <= STATEMENT_TIMESTAMP() LIMIT %(keys)s
), due AS MATERIALIZED (
    SELECT id FROM (
        SELECT id, BOOL_OR(state = 'leased') OVER way AS is_behind_one, ROW_NUMBER() OVER way = 1 AS is_first
        FROM found WINDOW way AS (ORDER BY aggregate, key)
    ) ranked WHERE is_first OR NOT is_behind_one
), heads AS MATERIALIZED (
    SELECT id, aggregate, key, state, attempts FROM {deliveries}
    WHERE id IN (SELECT id FROM due) AND is_open AND state <> 'dead' AND next_attempt_at <= STATEMENT_TIMESTAMP()
    ORDER BY aggregate, key FOR UPDATE SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT run.id, run.id = heads.id AS is_head FROM heads CROSS JOIN LATERAL (
        SELECT member.id, member.id = heads.id OR BOOL_AND(
            member.id = heads.id OR member.state = 'pending' AND member.next_attempt_at <= STATEMENT_TIMESTAMP()
        ) OVER (ORDER BY member.id) AS is_next
        FROM (
            SELECT id, state, next_attempt_at FROM {deliveries}
            WHERE is_open AND destination = %(destination)s AND aggregate = heads.aggregate AND key = heads.key
            ORDER BY aggregate, key, id
            LIMIT CASE WHEN heads.state = 'pending' AND heads.attempts = 0 THEN %(run)s::int ELSE 1 END
        ) member
    ) run WHERE run.is_next LIMIT %(rows)s
), taken AS (
    UPDATE {deliveries} delivery SET
        state = 'leased', lease_token = %(token)s, relay = %(relay)s,
        next_attempt_at = STATEMENT_TIMESTAMP() + %(lease)s::double precision * INTERVAL '1 second',
        attempts = delivery.attempts + CASE WHEN picked.is_head THEN 1 ELSE 0 END
    FROM picked{quiet} WHERE delivery.id = picked.id
    RETURNING delivery.id, picked.is_head, delivery.attempts, delivery.handled, delivery.message_id,
        delivery.aggregate, delivery.key
)
SELECT taken.id, is_head, attempts, handled, taken.aggregate, taken.key,
    RANK() OVER (ORDER BY taken.aggregate DESC, taken.key DESC) = 1, {columns}
FROM taken LEFT JOIN {messages} message ON message.id = taken.message_id ORDER BY taken.id
"""

#: Makes the commit of a statement not wait for the disk; in an open transaction it would speak for all of it.
QUIET = ", (SELECT SET_CONFIG('synchronous_commit', 'off', true)) quiet"


class Item(NamedTuple):
    """
    Hold one delivery that is leased: its row, the place of its key, the attempt this is, and its event.

    ``is_counted`` tells whether the claim has counted the attempt already. ``event`` is None when the message is gone.
    """

    pk: int
    place: Place
    attempt: int
    is_counted: bool
    event: Event | None


@dataclass(slots=True)
class Claim:
    """
    Hold what was leased together: a run of deliveries for each key, oldest first.

    ``end`` is the last of these keys as the database sorts them, from which the next claim may go on.
    """

    token: UUID
    #: By this machine's own clock, from before the statement that leased them.
    leased_at: float
    runs: dict[Place, list[Item]] = field(default_factory=dict)
    end: Place = BEGINNING

    def __bool__(self) -> bool:
        return bool(self.runs)


def claim(
    alias: str, destination: str, *, after: Place = BEGINNING, keys: int = 100, run: int = 10, relay: str = ""
) -> Claim:
    """
    Lease what is due of a destination, from the first key behind one.

    Transaction: commits by itself; within an open one it counts when that commits.
    """
    token, began = uuid4(), time.monotonic()
    values: dict[str, Any] = {
        "destination": destination,
        "token": token,
        "relay": relay[:255],
        "lease": options.lease_seconds(),
    }
    if connections[alias].vendor != "postgresql":
        items, end = claim_by_orm(alias, values, after, keys)
        return claimed(Claim(token, began, end=end), items)
    quiet = "" if connections[alias].in_atomic_block else QUIET
    place: dict[str, Any] = {"aggregate": after[0], "key": after[1], "keys": keys, "run": run, "rows": keys * 2}
    with connections[alias].cursor() as cursor:
        cursor.execute(composed(CLAIM, quiet), {**values, **place})
        rows = cursor.fetchall()
    end = next(((row[4], row[5]) for row in rows if row[6]), BEGINNING)
    return claimed(Claim(token, began, end=end), [item_of_row(row) for row in rows])


def claimed(found: Claim, items: Sequence[Item]) -> Claim:
    """
    Sort leased deliveries into runs.
    """
    for item in items:
        found.runs.setdefault(item.place, []).append(item)
    return found


@cache
def composed(statement: str, quiet: str) -> str:
    """
    Return a statement with its names filled in.
    """
    columns = ", ".join(f'message."{entry.column}"' for entry in OutboxMessage._meta.concrete_fields)
    return statement.format(
        deliveries=f'"{OutboxDelivery._meta.db_table}"',
        messages=f'"{OutboxMessage._meta.db_table}"',
        columns=columns,
        quiet=quiet,
    )


def item_of_row(row: Sequence[Any]) -> Item:
    """
    Return what a row of the claim's statement says.
    """
    pk, is_head, attempts, handled, aggregate, key, _is_end, *values = row
    attributes = [entry.attname for entry in OutboxMessage._meta.concrete_fields]
    told = dict(zip(attributes, values, strict=True))
    attempt = attempts if is_head else attempts + 1
    event = None if told["id"] is None else event_of(told, attempt, handled)
    return Item(pk, (aggregate, key), attempt, bool(is_head), event)


def event_of(told: dict[str, Any], attempt: int, handled: Any) -> Event:
    """
    Return a message as the event others get; JSON comes as text from drivers that were not told otherwise.
    """
    payload = json.loads(told["payload"]) if isinstance(told["payload"], str) else told["payload"]
    names = json.loads(handled) if isinstance(handled, str) else handled
    return Event(**{**told, "payload": payload}, attempt=attempt, handled=frozenset(names))


def claim_by_orm(alias: str, values: dict[str, Any], after: Place, keys: int) -> tuple[list[Item], Place]:
    """
    Lease the heads of keys where a statement can't say it all: a conditional update settles who gets a row.

    Shape: what was leased, and the last of its keys.
    """
    rows = OutboxDelivery.objects.using(alias).filter(destination=values["destination"], is_open=True)
    due = rows.filter(state__in=CLAIMABLE, next_attempt_at__lte=FromNow())
    with transaction.atomic(using=alias):
        if not connections[alias].features.has_select_for_update:
            take_write_lock(OutboxDelivery, alias)
        pks = together(due_heads(rows, due, after, keys))
        due.filter(pk__in=pks).update(
            state=DeliveryState.LEASED,
            lease_token=values["token"],
            relay=values["relay"],
            next_attempt_at=FromNow(values["lease"]),
            attempts=F("attempts") + 1,
        )
        taken = rows.filter(pk__in=pks, lease_token=values["token"]).order_by("id")
        found = list(taken)
        messages = OutboxMessage.objects.using(alias).in_bulk([row.message_id for row in found])
    last = next((row for row in found if row.pk == pks[-1]), None)
    end = BEGINNING if last is None else (last.aggregate, last.key)
    return [item_of(row, messages.get(row.message_id)) for row in found], end


def due_heads(rows: Deliveries, due: Deliveries, after: Place, keys: int) -> list[tuple[int, str]]:
    """
    Return the ids and states of due rows that are the oldest open ones of their keys, in the order of these, locked.
    """
    look = FIRST_LOOK
    while firsts := oldest_of_keys(rows, after, look):
        heads = due.filter(pk__in=[first for _aggregate, _key, first in firsts])
        if connections[rows.db].features.has_select_for_update_skip_locked:
            heads = heads.select_for_update(skip_locked=True)
        if found := list(heads.order_by("aggregate", "key", "id").values_list("id", "state")[:keys]):
            return found
        after, look = firsts[-1][:2], min(2 * look, LONGEST_LOOK)
    return []


def oldest_of_keys(rows: Deliveries, after: Place, count: int) -> list[tuple[str, str, int]]:
    """
    Return the next keys with their oldest rows, which an index alone answers.
    """
    behind = Q(aggregate__gt=after[0]) | Q(aggregate=after[0], key__gt=after[1])
    keys = rows.filter(behind).order_by("aggregate", "key").values_list("aggregate", "key")
    return list(keys.annotate(first=Min("id"))[:count])


def together(heads: Iterable[tuple[int, str]]) -> list[int]:
    """
    Return which heads go together: those before the first one whose last relay may have died with it, or it alone.
    """
    found = list(heads)
    safe = list(takewhile(lambda head: head[1] != DeliveryState.LEASED, found))
    return [pk for pk, _state in safe or found[:1]]


def item_of(row: OutboxDelivery, message: OutboxMessage | None) -> Item:
    """
    Return what a leased row and its message say.
    """
    fields = OutboxMessage._meta.concrete_fields
    told = None if message is None else {entry.attname: getattr(message, entry.attname) for entry in fields}
    event = None if told is None else event_of(told, row.attempts, row.handled)
    return Item(row.pk, (row.aggregate, row.key), row.attempts, True, event)
