"""
What the task queues have in common: the order they move and the rows their users write.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.db import models

from background_harness.contender import ONE_WRITE
from kits.background_jobs.models import Event, Order, StatusChange
from kits.background_jobs.moves import DONE, DRAFT

#: One row for the move to the busy state, one for the move to the target.
MOVES_OF_A_JOB = 2


class HandWritten:
    """
    An engine whose user writes state, history and event himself.
    """

    order: type[models.Model] = Order
    start, done = DRAFT, DONE
    polls_every = 0.0
    written_tables = (StatusChange._meta.db_table, Event._meta.db_table)

    def records(self, jobs: int, workload: str) -> Mapping[type[models.Model], int]:
        """
        Return both history rows of every job, and its event.
        """
        return {StatusChange: MOVES_OF_A_JOB * jobs, Event: jobs if workload == ONE_WRITE else 0}
