"""
Drive the library through its public calls and its worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import models

from background_harness.clones import clone_newest
from background_harness.contender import EVERYTHING, NO_OP, ONE_WRITE, Profile, Program
from django_logic.background.models import TransitionMessage
from django_logic.models import StatusChange
from kits.background_jobs.models import Event, Order
from kits.background_jobs.moves import DONE, DRAFT

MESSAGES = TransitionMessage._meta.db_table
#: One row for the move to the busy state, one for the move to the target.
MOVES_OF_A_JOB = 2


class Ours:
    """
    The library, with state, history and the row's end in one statement.
    """

    key = "ours"
    profile = Profile(label="this library, dl_worker", measures=(*EVERYTHING, "claims", "memory"))
    order: type[models.Model] = Order
    queue_table = MESSAGES
    tables: Sequence[str] = (MESSAGES, StatusChange._meta.db_table, Event._meta.db_table)
    start, done = DRAFT, DONE
    polls_every = 0.0

    def enqueue(self, order: Any, workload: str) -> None:
        """
        Call the transition.
        """
        if workload == NO_OP:
            order.process.approve()
        else:
            order.process.approve_with_write()

    def programs(self, children: int, *, for_memory: bool = False) -> Sequence[Program]:
        """
        Return the one command with its reused children; they are never replaced where their memory is followed.
        """
        arguments = ["-m", "django", "dl_worker", "--queues", "bench", f"--concurrency={children}"]
        if for_memory:
            arguments += ["--max-attempts-per-child=1000000", "--max-growth=0"]
        return [Program(arguments=arguments)]

    def claimers(self, children: int) -> int:
        """
        Every child claims by itself.
        """
        return children

    def records(self, jobs: int, workload: str) -> Mapping[type[models.Model], int]:
        """
        Return both history rows of every job, its own row and its event.
        """
        return {
            StatusChange: MOVES_OF_A_JOB * jobs,
            TransitionMessage: jobs,
            Event: jobs if workload == ONE_WRITE else 0,
        }

    def fill(self, rows: int) -> None:
        """
        Add rows of orders that do not exist, due after all others.
        """
        clone_newest(
            MESSAGES,
            rows,
            {
                "instance_id": "'filler-' || g",
                "transition_id": "gen_random_uuid()",
                "run_at": "t.run_at + g * interval '1 microsecond'",
            },
        )
