"""
pgqueuer: jobs are enqueued on Django's own connection, so that they commit with the order.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from django.db import connection, transaction
from pgqueuer.db import SyncPsycopgDriver
from pgqueuer.queries import SyncQueries

from background_harness.clones import clone_newest
from background_harness.contender import NO_OP, Profile, Program
from background_harness.trials import extras
from harness.contender import Contender
from kits.background_jobs.engine import HandWritten
from kits.background_jobs.moves import begin

QUEUE = "pgqueuer"


class PgQueuerEngine(HandWritten):
    """
    Drive pgqueuer.
    """

    key = "pgqueuer"
    profile = Profile(label=f"pgqueuer {version('pgqueuer')}, same writes by hand")
    queue_table = QUEUE
    tables: Sequence[str] = (QUEUE, "pgqueuer_log", *HandWritten.written_tables)

    def __init__(self) -> None:
        """
        Make its tables and enqueue over Django's connection.
        """
        subprocess.run([sys.executable, "-m", "pgqueuer", "install"], check=True)
        connection.ensure_connection()
        self._queries = SyncQueries(SyncPsycopgDriver(connection.connection))

    def enqueue(self, order: Any, workload: str) -> None:
        """
        Move and enqueue in one transaction.
        """
        with transaction.atomic():
            begin(order)
            entrypoint = "approve" if workload == NO_OP else "approve_with_write"
            self._queries.enqueue(entrypoint, str(order.pk).encode())

    def programs(self, children: int, *, for_memory: bool = False) -> Sequence[Program]:
        """
        Return one worker for each child.
        """
        return [Program(arguments=["-m", "kits.background_pgqueuer.consumer"])] * children

    def claimers(self, children: int) -> int:
        """
        Every worker fetches batches of ten.
        """
        return children

    def fill(self, rows: int) -> None:
        """
        Add jobs behind the others.
        """
        clone_newest(QUEUE, rows, {})


CONTENDERS: list[Contender] = []
EXTRAS = extras(PgQueuerEngine())
