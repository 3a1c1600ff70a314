"""
Time the library's claim by itself in front of backlogs of several depths.
"""

from __future__ import annotations

import time
from typing import Any

from django.db import connection

from background_harness.contender import NO_OP
from django_logic.background import claim
from django_logic.background.lanes import Lane, lanes_of
from harness.contender import WrongResult, settle_tables, stage
from kits.background_jobs.models import Order
from kits.background_ours.engine import Ours

CLAIMS = 400
WARM_UP = 20


def claims(engine: Ours, rows: int) -> dict[str, Any]:
    """
    Claim again and again with that many rows waiting; each claimed row is put back behind all others.

    Units: milliseconds.
    """
    with connection.cursor() as cursor:
        names = ", ".join(f'"{table}"' for table in (Order._meta.db_table, *engine.tables))
        cursor.execute(f"TRUNCATE {names} CASCADE")
    if rows:
        (order,) = stage(Order, 1)
        engine.enqueue(order, NO_OP)
        engine.fill(rows - 1)
    settle_tables()
    lanes = lanes_of("default", ["bench"], [Lane("bench", 0)])
    found: list[float] = []
    for _ in range(WARM_UP + CLAIMS):
        started = time.perf_counter()
        message = claim.take_next("default", lanes)
        found.append((time.perf_counter() - started) * 1000)
        if (message is None) != (rows == 0):
            raise WrongResult(f"a claim in front of {rows:,} rows answered {message}")
        if message is not None:
            _put_back(engine, message.pk)
    return {"milliseconds": found[WARM_UP:]}


def _put_back(engine: Ours, pk: int) -> None:
    # Behind the others and with no attempt counted, so that every claim meets the same backlog.
    with connection.cursor() as cursor:
        cursor.execute(
            f'UPDATE "{engine.queue_table}" SET attempts_started = 0, errors_count = 0, claim_token = NULL,'
            " run_at = statement_timestamp() WHERE id = %s",
            [pk],
        )
