"""
django-tasks-db: one process for each job at a time, as its worker is single-threaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from django.db import transaction
from django_tasks_db.models import DBTaskResult

from background_harness.clones import clone_newest
from background_harness.contender import NO_OP, Profile, Program
from background_harness.trials import extras
from harness.contender import Contender
from kits.background_jobs.engine import HandWritten
from kits.background_jobs.moves import begin
from kits.background_tasks.tasks import approve, approve_with_write

RESULTS = DBTaskResult._meta.db_table


class TasksDb(HandWritten):
    """
    Drive django-tasks-db.
    """

    key = "tasks_db"
    profile = Profile(label=f"django-tasks-db {version('django-tasks-db')}, same writes by hand")
    queue_table = RESULTS
    tables: Sequence[str] = (RESULTS, *HandWritten.written_tables)
    polls_every = 1.0

    def enqueue(self, order: Any, workload: str) -> None:
        """
        Move and enqueue in one transaction.
        """
        with transaction.atomic():
            begin(order)
            (approve if workload == NO_OP else approve_with_write).enqueue(order.pk)

    def programs(self, children: int, *, for_memory: bool = False) -> Sequence[Program]:
        """
        Return one worker for each child.
        """
        arguments = ["-m", "django", "db_worker", "--queue-name=bench", "--no-startup-delay", "--verbosity=0"]
        return [Program(arguments=arguments)] * children

    def claimers(self, children: int) -> int:
        """
        Every worker claims.
        """
        return children

    def fill(self, rows: int) -> None:
        """
        Add results that are enqueued later than all others.
        """
        clone_newest(RESULTS, rows, {"id": "gen_random_uuid()", "enqueued_at": "t.enqueued_at + interval '1 second'"})


CONTENDERS: list[Contender] = []
EXTRAS = extras(TasksDb())
