"""
The published django-logic: its row, its worker, its lock in Redis; it writes no history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from django.apps import apps
from django.db import models

from background_harness.clones import clone_newest
from background_harness.contender import EVERYTHING, NO_OP, ONE_WRITE, Profile, Program
from background_harness.trials import extras
from harness.contender import Contender
from kits.background_jobs.models import Event, Order
from kits.background_jobs.moves import DONE, DRAFT

INSTALLED = version("django-logic")
# The row's table, found by the label its manual names.
MESSAGES = apps.get_model("django_logic_background", "TransitionMessage")._meta.db_table


class Upstream:
    """
    Drive the published library through its documented calls.
    """

    key = f"django_logic_{INSTALLED}"
    profile = Profile(
        label=f"published django-logic {INSTALLED} (no history row)",
        # Filling its table takes half a minute; the two releases share that table, so one of them shows it.
        measures=EVERYTHING if INSTALLED == "0.17.2" else ("enqueue", "drain", "latency"),
    )
    order: type[models.Model] = Order
    queue_table = MESSAGES
    tables: Sequence[str] = (MESSAGES, Event._meta.db_table)
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
        Return the one command that forks the attempts.
        """
        arguments = ["-m", "django", "dl_worker", "--queues", "bench", f"--concurrency={children}"]
        return [Program(arguments=arguments)]

    def claimers(self, children: int) -> int:
        """
        Only the parent claims.
        """
        return 1

    def records(self, jobs: int, workload: str) -> Mapping[type[models.Model], int]:
        """
        Return the event rows; there is no history.
        """
        return {Event: jobs if workload == ONE_WRITE else 0}

    def fill(self, rows: int) -> None:
        """
        Add rows of orders that do not exist; they are never reached.
        """
        clone_newest(MESSAGES, rows, {"instance_id": "'filler-' || g"})


CONTENDERS: list[Contender] = []
EXTRAS = extras(Upstream())
