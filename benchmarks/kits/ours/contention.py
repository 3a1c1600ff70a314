"""
The library's own calls from several threads at one row.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from django.db import connection

from django_logic.exceptions import TransitionNotAllowed
from django_logic.models import StatusChange
from harness.contender import START, stage
from harness.contention import broken_links
from kits.ours.models import PlainOrder


def contend_through_calls(threads: int, attempts: int) -> dict[str, Any]:
    """
    Toggle one row through ``approve`` and ``reopen`` from every thread at once.

    Shape: what the calls answered, and the number of broken links in the history.
    """
    (order,) = stage(PlainOrder, 1)
    tally: Counter[str] = Counter()
    release = threading.Barrier(threads)
    guard = threading.Lock()

    def work() -> None:
        mine = _toggle(order.pk, attempts, release)
        with guard:
            tally.update(mine)

    crowd = [threading.Thread(target=work) for _ in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    broken, length = broken_links(PlainOrder, StatusChange, order.pk)
    return {
        "threads": threads,
        "attempts": threads * attempts,
        "answers": dict(tally),
        "moved": tally["moved"],
        "history_rows": length,
        "broken_links": broken,
    }


def _toggle(key: int, attempts: int, release: threading.Barrier) -> Counter[str]:
    tally: Counter[str] = Counter()
    connection.ensure_connection()
    try:
        release.wait()
        for _ in range(attempts):
            order: Any = PlainOrder.objects.get(pk=key)
            call = order.process.approve if order.state == START else order.process.reopen
            try:
                tally["moved" if call() else "duplicate"] += 1
            except TransitionNotAllowed as refusal:
                tally[f"refused {refusal.reason}"] += 1
            except Exception as error:  # counted, because an unexpected kind is a finding
                tally[f"error {type(error).__name__}"] += 1
    finally:
        connection.close()
    return tally
