"""
Send one statement from several threads at one row, and read what the chain of records looks like afterwards.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import psycopg
from django.db import models

from harness.contender import START, TARGET, stage
from harness.statement import Statement, bare_connection


def contend(
    model: type[models.Model], history: type[models.Model], statement: Statement, *, threads: int, attempts: int
) -> dict[str, Any]:
    """
    Toggle one row between two states from every thread at once.

    Shape: counts of moves, lost attempts and unique violations, and the number of broken links in the history.
    """
    (order,) = stage(model, 1)
    tally: Counter[str] = Counter()
    release = threading.Barrier(threads)
    guard = threading.Lock()

    def work() -> None:
        mine = _toggle(model, order.pk, statement, attempts, release)
        with guard:
            tally.update(mine)

    crowd = [threading.Thread(target=work) for _ in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    broken, length = broken_links(model, history, order.pk)
    return {
        "threads": threads,
        "attempts": threads * attempts,
        "moved": tally["moved"],
        "lost": tally["lost"],
        "unique_violations": tally["violation"],
        "history_rows": length,
        "broken_links": broken,
    }


def _toggle(
    model: type[models.Model], key: int, statement: Statement, attempts: int, release: threading.Barrier
) -> Counter[str]:
    tally: Counter[str] = Counter()
    table = model._meta.db_table
    reading = f'SELECT state FROM "{table}" WHERE id = %s'.encode()
    with bare_connection() as session:
        release.wait()
        for _ in range(attempts):
            row = session.execute(reading, [key]).fetchone()
            start = row[0] if row else START
            target = TARGET if start == START else START
            try:
                cursor = session.execute(statement.text.encode(), statement.bind(key, start, target))
            except psycopg.errors.UniqueViolation:
                tally["violation"] += 1
            else:
                tally["moved" if cursor.rowcount == 1 else "lost"] += 1
    return tally


def broken_links(model: type[models.Model], history: type[models.Model], key: int) -> tuple[int, int]:
    """
    Count gaps in the sequence and records that do not start where the one before ended.

    Shape: (broken links, records); the row itself counts as the last link.
    """
    records = history._base_manager.filter(model_name=model._meta.model_name, instance_id=str(key))
    chain = list(records.order_by("sequence").values_list("sequence", "from_state", "to_state"))
    state, broken = START, 0
    for expected, (sequence, found, reached) in enumerate(chain, start=1):
        broken += (sequence, found) != (expected, state)
        state = reached
    column = model._base_manager.values_list("state", flat=True).get(pk=key)
    return broken + (column != state), len(chain)
