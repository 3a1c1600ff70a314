"""
Make events as publishers get them, and read what became of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from django_logic.outbox.event import Event
from django_logic.outbox.publishers import Fate, Result

__all__ = ["event", "fates"]


def event(key: str, **facts: Any) -> Event:
    """
    Make an event of one object.
    """
    return Event(
        **{
            "id": uuid4(),
            "topic": "shop.order.paid",
            "key": key,
            "payload": {"total": "1.00"},
            "occurred_at": datetime.now(UTC),
            "aggregate": "shop.order",
            **facts,
        }
    )


def fates(results: Sequence[Result]) -> list[Fate]:
    """
    Return what became of each event.
    """
    return [result.fate for result in results]
