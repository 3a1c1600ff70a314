"""
An event as subscribers and publishers get it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

__all__ = ["Event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """
    Hold what one message tells; the same whenever it is delivered again, except for ``attempt`` and ``handled``.

    ``key`` names the object, and events of one key come in order. ``sequence`` is the number of the move in the
    object's history, None where nothing moved.
    """

    id: UUID
    topic: str
    key: str
    payload: Mapping[str, Any]
    occurred_at: datetime
    sequence: int | None = None
    #: The app and model of the object: ``shop.order``.
    aggregate: str = ""
    #: Where the shape of the payload is told; "" for nowhere.
    schema: str = ""
    #: The trace the move was made in, in the form of W3C Trace Context; "" for none.
    traceparent: str = ""
    #: Counts deliveries from 1.
    attempt: int = 1
    #: The subscribers that took the event in an earlier attempt.
    handled: frozenset[str] = frozenset()
