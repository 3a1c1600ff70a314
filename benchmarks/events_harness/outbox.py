"""
What an outbox answers to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.db import models

from background_harness.contender import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """
    What a controller says of one contender before anything is measured.
    """

    label: str
    #: Among: costs, drains, streams, lags, claims.
    measures: Sequence[str]
    #: With how many relays it is measured.
    relays: Sequence[int] = (1, 3)


class Outbox(Protocol):
    """
    One competitor, driven through its documented interface.
    """

    key: str
    profile: Profile
    order: type[models.Model]
    #: The tables a trial starts without, and the one its claims lock rows in; "" for claims that lock none.
    tables: Sequence[str]
    queue_table: str

    def write(self, alias: str, events: int, *, is_hot: bool, to_stream: bool = False) -> None:
        """
        Write events with the numbers from 0 on, each of another key or all of one, in that order.
        """

    def programs(self, relays: int, alias: str) -> Sequence[Program]:
        """
        Return the relays to start.
        """

    def move(self, order: Any) -> int:
        """
        Move an order and write its event, whose number is the order's key.

        Shape: when it was committed, by `time.perf_counter_ns`.
        """
