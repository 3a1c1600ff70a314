"""
What a background engine answers to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from django.db import models

NO_OP, ONE_WRITE = "no-op", "one write"
WORKLOADS = (NO_OP, ONE_WRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """
    One worker process to start: its arguments after the interpreter, and what it adds to the environment.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


#: What is measured of an engine that has nothing special about it.
EVERYTHING = ("enqueue", "drain", "latency", "deep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """
    What a controller says of one contender before anything is measured.
    """

    label: str
    measures: Sequence[str] = EVERYTHING
    #: With how many jobs at a time it is measured; all that the plan asks for when empty.
    children: Sequence[int] = ()


class Engine(Protocol):
    """
    One competitor, driven through its documented interface.
    """

    key: str
    profile: Profile
    #: The order it moves, the tables a trial starts without, and the one its claims lock rows in.
    order: type[models.Model]
    tables: Sequence[str]
    queue_table: str
    #: The states before the call and after the job.
    start: str
    done: str
    #: How long an idle worker sleeps that nobody wakes, so that calls meet it at any moment of its sleep; seconds.
    polls_every: float

    def enqueue(self, order: Any, workload: str) -> None:
        """
        Move one order to its busy state and enqueue its job, in one transaction.
        """

    def programs(self, children: int, *, for_memory: bool = False) -> Sequence[Program]:
        """
        Return the worker processes that run that many jobs at a time.
        """

    def claimers(self, children: int) -> int:
        """
        Return how many sessions wait for a job at the gate once every worker is ready.
        """

    def records(self, jobs: int, workload: str) -> Mapping[type[models.Model], int]:
        """
        Return how many rows of which models that many finished jobs leave behind.
        """

    def fill(self, rows: int) -> None:
        """
        Put that many further rows behind the job that is enqueued already, without enqueueing each.
        """
