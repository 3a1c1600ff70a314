"""
``run_available`` in the controller itself.
"""

from __future__ import annotations

import time
from typing import Any

from background_harness import trials
from django_logic.background import run_available
from harness.contender import Contender, WrongResult
from kits.background_ours.engine import Ours

ENGINE = Ours()


def describe() -> dict[str, Any]:
    """
    Name the contender; it is one process and nothing else.
    """
    return {"key": "ours_inline", "label": "this library, run_available", "most_children": 1}


def drain(jobs: int, children: int, workload: str) -> dict[str, Any]:
    """
    Run a backlog in this process.

    Units: seconds.
    """
    trials.prepare(ENGINE, jobs, workload)
    started = time.perf_counter()
    ran = run_available(["bench"])
    seconds = time.perf_counter() - started
    if ran != jobs:
        raise WrongResult(f"run_available ran {ran} rows of {jobs}")
    trials.check(ENGINE, jobs, workload)
    return {"seconds": seconds}


CONTENDERS: list[Contender] = []
EXTRAS = {"describe": describe, "drain": drain}
