"""
procrastinate through its Django connector; its worker uses psycopg, its tasks Django's connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from django.db import transaction

from background_harness.clones import clone_newest
from background_harness.contender import NO_OP, Profile, Program
from background_harness.trials import extras
from harness.contender import Contender
from kits.background_jobs.engine import HandWritten
from kits.background_jobs.moves import begin
from kits.background_procrastinate.tasks import approve, approve_with_write

JOBS = "procrastinate_jobs"
INSTALLED = version("procrastinate")
WORKER = ("-m", "django", "procrastinate", "worker", "--queues=bench")


class Procrastinate(HandWritten):
    """
    Drive procrastinate.
    """

    key = "procrastinate"
    profile = Profile(label=f"procrastinate {INSTALLED}, same writes by hand")
    queue_table = JOBS
    tables: Sequence[str] = (JOBS, *HandWritten.written_tables)

    def enqueue(self, order: Any, workload: str) -> None:
        """
        Move and defer in one transaction.
        """
        with transaction.atomic():
            begin(order)
            (approve if workload == NO_OP else approve_with_write).defer(key=order.pk)

    def programs(self, children: int, *, for_memory: bool = False) -> Sequence[Program]:
        """
        Return one worker for each child.
        """
        return [Program(arguments=[*WORKER, "--concurrency=1"])] * children

    def claimers(self, children: int) -> int:
        """
        Every worker fetches jobs one by one.
        """
        return children

    def fill(self, rows: int) -> None:
        """
        Add jobs behind the others.
        """
        clone_newest(JOBS, rows, {})


class OneProcess(Procrastinate):
    """
    The same in one process whose threads run the jobs; with one at a time there is no difference.
    """

    key = "procrastinate_threads"
    profile = Profile(label=f"procrastinate {INSTALLED}, one process", measures=("drain",), children=(2, 4))

    def programs(self, children: int, *, for_memory: bool = False) -> Sequence[Program]:
        """
        Return one worker.
        """
        return [Program(arguments=[*WORKER, f"--concurrency={children}"])]

    def claimers(self, children: int) -> int:
        """
        One loop fetches for all threads.
        """
        return 1


CONTENDERS: list[Contender] = []
EXTRAS = extras(Procrastinate(), OneProcess())
