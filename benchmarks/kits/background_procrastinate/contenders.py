"""
procrastinate through its Django connector; its worker uses psycopg, its tasks Django's connections.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from django.db import transaction

from background_harness.clones import clone_newest
from background_harness.contender import NO_OP, Program
from background_harness.trials import extras
from harness.contender import Contender
from kits.background_jobs.engine import HandWritten
from kits.background_jobs.moves import begin
from kits.background_procrastinate.tasks import approve, approve_with_write

JOBS = "procrastinate_jobs"


class Procrastinate(HandWritten):
    """
    Drive procrastinate.
    """

    key = "procrastinate"
    label = f"procrastinate {version('procrastinate')}, same writes by hand"
    queue_table = JOBS
    tables = (JOBS, *HandWritten.written_tables)

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
        arguments = ["-m", "django", "procrastinate", "worker", "--queues=bench"]
        if os.environ.get("BENCH_ONE"):
            return [Program(arguments=[*arguments, f"--concurrency={children}"])]
        return [Program(arguments=[*arguments, "--concurrency=1"])] * children

    def claimers(self, children: int) -> int:
        """
        Every worker fetches jobs one by one.
        """
        if os.environ.get("BENCH_ONE"):
            return 1
        return children

    def fill(self, rows: int) -> None:
        """
        Add jobs behind the others.
        """
        clone_newest(JOBS, rows, {})


CONTENDERS: list[Contender] = []
EXTRAS = extras(Procrastinate())
