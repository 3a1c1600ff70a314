"""
Processes of other apps that a worker keeps beside its own, such as a relay of events.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from django_logic.background.worker.children import describe, kill
from django_logic.background.worker.plan import WorkerPlan
from django_logic.extension import companion

__all__ = ["Companions"]

logger = logging.getLogger("django-logic.worker")

#: How long to wait before one that ended is replaced; seconds.
HIRE_PAUSE = 1.0


class Companions:
    """
    Keep one process of each kind the plan names.
    """

    def __init__(self, plan: WorkerPlan) -> None:
        self.plan = plan
        self.pids: dict[int, str] = {}
        self.hire_at: dict[str, float] = dict.fromkeys(plan.companions, 0.0)

    def staff(self, fork: Callable[[str, Callable[[], Any]], int]) -> None:
        """
        Start what does not run.
        """
        now, running = time.monotonic(), set(self.pids.values())
        for name, hire_at in self.hire_at.items():
            if name in running or now < hire_at:
                continue
            self.hire_at[name] = now + HIRE_PAUSE
            plan = self.plan
            facts = {"alias": plan.alias, "listen_alias": plan.listen_alias, "grace": plan.grace, "name": plan.label}
            pid = fork(name, partial(companion(name).live, **facts))
            if pid:
                self.pids[pid] = name

    def bury(self, pid: int, status: int, *, is_wanted: bool) -> bool:
        """
        Take note that one has ended; False for a process that is none of these.
        """
        name = self.pids.pop(pid, None)
        if name is not None and not is_wanted:
            logger.error("The %s ended (%s) and is replaced", name, describe(status))
        return name is not None

    def end(self, number: int = signal.SIGTERM) -> None:
        """
        Ask all to end, or make them.
        """
        for pid in self.pids:
            kill(pid, number)
