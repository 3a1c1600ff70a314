"""
The library as the harness drives it: its worker, and the call that runs what is there without one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from background_harness import trials
from background_harness.contender import Profile, Program
from django_logic.background import run_available
from harness.contender import Contender, WrongResult
from kits.background_ours.claims import claims
from kits.background_ours.engine import Ours


class Inline(Ours):
    """
    No worker: the controller itself runs the backlog.
    """

    key = "ours_inline"
    profile = Profile(label="this library, run_available", measures=("drain",), children=(1,))


class Prepared(Ours):
    """
    Workers whose connection lets PostgreSQL keep statements, as where no pooler stands between.
    """

    key = "ours_prepared"
    profile = Profile(label="this library, prepared (not Django's default)", measures=("drain", "latency"))

    def programs(self, children: int, *, for_memory: bool = False) -> Sequence[Program]:
        """
        Return the same command with settings of its own.
        """
        programs = super().programs(children, for_memory=for_memory)
        return [replace(each, environment={"BENCH_PREPARED": "1"}) for each in programs]


ENGINE, INLINE, PREPARED = Ours(), Inline(), Prepared()
ANSWERS = trials.extras(ENGINE, INLINE, PREPARED)


def drain(contender: str, jobs: int, children: int, workload: str) -> dict[str, Any]:
    """
    Drain with the worker, or in this process.

    Units: seconds.
    """
    if contender == INLINE.key:
        return _run_here(jobs, workload)
    return ANSWERS["drain"](contender=contender, jobs=jobs, children=children, workload=workload)


def _run_here(jobs: int, workload: str) -> dict[str, Any]:
    trials.prepare(INLINE, jobs, workload)
    started = time.perf_counter()
    ran = run_available(["bench"])
    seconds = time.perf_counter() - started
    if ran != jobs:
        raise WrongResult(f"run_available ran {ran} rows of {jobs}")
    trials.check(INLINE, jobs, workload)
    return {"seconds": seconds}


def claim_times(contender: str, rows: int) -> dict[str, Any]:
    """
    Time claims in front of that many rows.

    Units: milliseconds.
    """
    return claims(ENGINE, rows)


CONTENDERS: list[Contender] = []
EXTRAS = {**ANSWERS, "drain": drain, "claims": claim_times}
