"""
Time the relay's claim where few rows are delivered, where a million are, and where very many keys wait.
"""

from __future__ import annotations

import random
import time
from typing import Any

import psycopg
from django.core.management import call_command
from django.db import connections
from psycopg import sql

from django_logic.outbox.models import OutboxDelivery, OutboxMessage
from django_logic.outbox.relay.claim import BEGINNING, claim
from events_harness.trials import session
from events_harness.turns import empty, settle
from harness.contender import WrongResult
from kits.events_ours.outbox import Ours

ENDS = "subscribers"
SHALLOW, DEEP = "default", "deep"
KEYS = 100
WARM_UP = 5
PUT_BACK = (
    f'UPDATE "{Ours.queue_table}" SET state = %s, attempts = 0, lease_token = NULL, next_attempt_at = created'
    " WHERE state = %s"
)
#: Copies one message and its delivery, set by set.
COPY = """
WITH made AS (
    INSERT INTO {messages}
        (id, aggregatetype, aggregateid, type, payload, sequence, occurred_at, dataschema, traceparent)
    SELECT gen_random_uuid(), aggregatetype, 'old-' || g, type, JSONB_SET(payload, '{{number}}', TO_JSONB(g)),
        1, occurred_at, dataschema, traceparent
    FROM {messages}, generate_series(1, %(rows)s) g WHERE aggregateid = '0'
    RETURNING id, aggregateid
)
INSERT INTO {deliveries} (message_id, destination, aggregate, key, topic, state, is_open, attempts, created,
    next_attempt_at, sent_at, relay, error, handled)
SELECT made.id, destination, aggregate, made.aggregateid, topic, %(state)s, %(state)s = 'pending', 0, created,
    next_attempt_at, CASE WHEN %(state)s = 'sent' THEN created END, relay, error, handled
FROM made, {deliveries} WHERE key = '0'
"""


def fill(contender: str, alias: str, rows: int, state: str) -> dict[str, Any]:
    """
    Leave nothing but that many deliveries in one state; the deep database is made on first use.
    """
    if alias == DEEP:
        make_deep()
    empty(alias, Ours.tables)
    Ours().write(alias, 1, is_hot=False)
    names = {"messages": quoted(OutboxMessage), "deliveries": quoted(OutboxDelivery)}
    with session(alias) as direct:
        direct.execute(sql.SQL(COPY).format(**names), {"rows": rows, "state": state})
        direct.execute(sql.SQL("DELETE FROM {} WHERE key = '0'").format(names["deliveries"]))
        direct.execute(sql.SQL("DELETE FROM {} WHERE aggregateid = '0'").format(names["messages"]))
    settle(alias)
    return {"seconds": 0.0}


def make_deep() -> None:
    """
    Create the deep database with its tables.
    """
    name = connections[DEEP].settings_dict["NAME"]
    with session(SHALLOW) as direct:
        if direct.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone():
            return
        direct.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    call_command("migrate", database=DEEP, verbosity=0, interactive=False)
    call_command("migrate", database=DEEP, run_syncdb=True, verbosity=0, interactive=False)


def claims(contender: str, claims: int, pending: int, seed: int) -> dict[str, Any]:
    """
    Claim in the shallow and in the deep database by turns; what was claimed is put back.

    Shape: milliseconds of each claim, by database.
    """
    order = random.Random(seed)  # noqa: S311 (an order, not a secret)
    found: dict[str, list[float]] = {SHALLOW: [], DEEP: []}
    after = dict.fromkeys(found, BEGINNING)
    for alias in found:
        Ours().write(alias, pending, is_hot=False)
        settle(alias)
    for _ in range(WARM_UP + claims):
        for alias in order.sample(list(found), len(found)):
            took, after[alias] = one_claim(alias, after[alias])
            found[alias].append(took)
            with connections[alias].cursor() as cursor:
                cursor.execute(PUT_BACK, ["pending", "leased"])
    for alias in found:
        with connections[alias].cursor() as cursor:
            cursor.execute(f'DELETE FROM "{Ours.queue_table}" WHERE state = %s', ["pending"])
    return {"milliseconds": {alias: times[WARM_UP:] for alias, times in found.items()}}


def sweep(contender: str, claims: int) -> dict[str, Any]:
    """
    Claim on and on in front of what waits, as a relay does that is asked to; nothing is put back.

    Shape: milliseconds of each claim.
    """
    after, found = BEGINNING, []
    for _ in range(WARM_UP + claims):
        took, after = one_claim(SHALLOW, after)
        found.append(took)
    return {"milliseconds": found[WARM_UP:]}


def one_claim(alias: str, after: tuple[str, str]) -> tuple[float, tuple[str, str]]:
    """
    Time one claim; return where the next one goes on.

    Raises: WrongResult when it found nothing.
    """
    started = time.perf_counter()
    claimed = claim(alias, ENDS, after=after, keys=KEYS)
    took = (time.perf_counter() - started) * 1000
    if not claimed and after == BEGINNING:
        raise WrongResult("a claim found nothing")
    if len(claimed.runs) < KEYS // 2:
        return one_claim(alias, BEGINNING)
    return took, claimed.end


def quoted(model: Any) -> psycopg.sql.Identifier:
    """
    Quote the name of a table.
    """
    return sql.Identifier(model._meta.db_table)
