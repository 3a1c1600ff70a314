"""
Ten thousand rows in one statement: what the set-based path of a library is measured against.
"""

from __future__ import annotations

import time
from typing import Any

from django.db import models

from harness.contender import WrongResult, check_moved, settle_tables, stage
from harness.statement import bare_connection
from kits.raw.statements import move_many


def move_set(model: type[models.Model], history: type[models.Model], rows: int) -> dict[str, Any]:
    """
    Move that many fresh rows at once.

    Units: seconds.
    """
    keys = [order.pk for order in stage(model, rows)]
    before = history._base_manager.count()
    text, parameters = move_many(model, history, keys)
    settle_tables()
    with bare_connection() as session:
        started = time.perf_counter()
        session.execute(text.encode(), parameters)
        seconds = time.perf_counter() - started
    check_moved(model, keys)
    if (written := history._base_manager.count() - before) != rows:
        raise WrongResult(f"bulk: expected {rows} history rows, found {written}")
    return {"seconds": seconds}
