"""
The parent of a worker: it forks, watches the clock, buries, and hands accounts to the clerk. It has no database.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from django.db import DatabaseError

from django_logic.background import safety_nets
from django_logic.background.worker.board import Board
from django_logic.background.worker.child import Child
from django_logic.background.worker.children import Children, describe, kill
from django_logic.background.worker.companions import Companions
from django_logic.background.worker.forking import fork
from django_logic.background.worker.office import HIRE_PAUSE, Office
from django_logic.background.worker.plan import WorkerPlan
from django_logic.databases import close_databases
from django_logic.wakeup import wakeup_pipe

__all__ = ["Supervisor"]

logger = logging.getLogger("django-logic.worker")

#: How often the parent looks at its clock; seconds.
TICK = 0.1
#: How often the safety nets are spread, and how long that may take.
UPKEEP_EVERY, UPKEEP_LIMIT = 60.0, 50.0
#: How long accounts may take to land when the worker stops, and when it is forced to.
LANDING, FORCED_LANDING = 10.0, 2.0
#: How often the health file is touched while all is well.
HEALTH_EVERY = 5.0


class Supervisor:
    """
    Run a worker until a signal ends it, or, when draining, until nothing is due.
    """

    def __init__(self, plan: WorkerPlan) -> None:
        self.plan = plan
        self.board = Board(plan.concurrency)
        self.wake = wakeup_pipe()
        self.children = Children(self.board, self.spawn_child)
        self.office = Office(plan, self.board, self.wake[1])
        self.companions = Companions(plan)
        self.upkeep = 0
        self.upkeep_at = self.upkeep_born = self.health_at = 0.0
        self.signals: list[int] = []
        self.signal_pipe = wakeup_pipe()

    def run(self) -> int:
        """
        Run; return the exit status: 0 for a clean stop, 128 and the signal's number for a forced one.
        """
        self.watch_signals()
        close_databases()
        self.warn_of_threads()
        try:
            while not self.signals and not self.is_drained():
                self.turn()
            return self.stop()
        finally:
            self.tell_health(False)

    def watch_signals(self) -> None:
        """
        Note signals and wake up for them.
        """
        signal.set_wakeup_fd(self.signal_pipe[1], warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.note_signal)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def note_signal(self, number: int, _frame: Any) -> None:
        """
        Note that somebody wants an end.
        """
        self.signals.append(number)

    def warn_of_threads(self) -> None:
        """
        Say that a lock some thread holds as a child is forked would stay locked in the child.
        """
        others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        if others:
            logger.warning(
                "%d thread(s) run as the children are forked (%s): start threads after the fork, as in a hook.",
                len(others),
                ", ".join(others),
            )

    def turn(self) -> None:
        """
        Do one round of everything there is to look after, and wait for the next one.
        """
        self.reap()
        self.office.staff(self.fork)
        self.companions.staff(self.fork)
        self.children.fill()
        self.children.enforce()
        self.keep_up()
        self.tell_health(self.children.are_ready)
        self.wait(TICK)

    def wait(self, seconds: float) -> None:
        """
        Wait for a signal, a child's end, a report of the clerk, or the time to pass.
        """
        reports = self.office.reports
        sources = [self.signal_pipe[0], *([reports] if reports >= 0 else [])]
        ready, _, _ = select.select(sources, [], [], seconds)
        if self.signal_pipe[0] in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.signal_pipe[0], 512)
        if reports in ready and self.office.read():
            self.children.look_again()

    def spawn_child(self, place: int) -> int:
        """
        Fork an attempt child.
        """
        return self.fork("attempt child", lambda: Child(place, self.board, self.plan, self.wake).live())

    def fork(self, role: str, life: Callable[[], Any]) -> int:
        """
        Fork a child that keeps none of the pipes it has no use for; return its pid, 0 where the system makes none.
        """

        def live() -> None:
            self.office.close()
            life()

        try:
            return fork(role, live)
        except OSError as error:
            logger.error(
                "No %s could be forked (%s); trying again soon. Look at the limits of processes and memory.",
                role,
                error,
            )
            return 0

    def reap(self) -> None:
        """
        Bury every process that has ended, adopted ones too: as the first of a container a worker inherits orphans.
        """
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self.office.pid:
                self.office.lose()
                if not self.children.is_closing:
                    logger.error("The clerk ended (%s) and is replaced", describe(status))
            elif pid == self.upkeep:
                self.upkeep = 0
                if status and not self.signals:
                    logger.error("Upkeep ended early: %s", describe(status))
            elif not self.companions.bury(pid, status, is_wanted=self.children.is_closing):
                account = self.children.bury(pid, status)
                if account is not None:
                    self.office.enter(account)

    def keep_up(self) -> None:
        """
        Spread the safety nets once a minute in a process of its own, and end one that takes too long.
        """
        now = time.monotonic()
        if self.upkeep and now - self.upkeep_born > UPKEEP_LIMIT:
            logger.error("Upkeep took longer than %.0f s and was ended; a failure callback may hang", UPKEEP_LIMIT)
            kill(self.upkeep, signal.SIGKILL)
            self.upkeep_born = now
        if not self.upkeep and now >= self.upkeep_at:
            self.upkeep_at = now + UPKEEP_EVERY
            self.upkeep_born = now
            self.upkeep = self.fork("upkeep", partial(keep_up, self.plan.alias))
            if not self.upkeep:
                self.upkeep_at = now + HIRE_PAUSE

    def is_drained(self) -> bool:
        """
        Tell whether a draining worker has nothing left to do.
        """
        is_busy = self.children.by_pid or self.upkeep or self.office.accounts
        return self.plan.is_draining and len(self.children.drained) == self.plan.concurrency and not is_busy

    def tell_health(self, is_well: bool) -> None:
        """
        Keep the health file fresh while every child works or waits; take it away otherwise.
        """
        if self.plan.health_file is None:
            return
        path, now = Path(self.plan.health_file), time.monotonic()
        if is_well and now < self.health_at:
            return
        self.health_at = now + HEALTH_EVERY if is_well else 0.0
        try:
            if is_well:
                path.write_text(f"{os.getpid()}\n")
            else:
                path.unlink(missing_ok=True)
        except OSError as error:  # a full disk is no reason to end attempts
            logger.error("The health file can't be kept up to date: %s", error)

    def stop(self) -> int:
        """
        Let attempts finish, end those that do not, see their accounts land, and say how it went.
        """
        self.tell_health(False)
        self.children.close()
        self.companions.end()
        self.go_on_until(lambda: not self.children.by_pid and not self.companions.pids, self.plan.grace, forced=0.0)
        self.companions.end(signal.SIGKILL)
        self.children.end()
        self.go_on_until(lambda: not self.children.by_pid, LANDING)
        if self.upkeep:
            kill(self.upkeep, signal.SIGKILL)
        self.go_on_until(lambda: not self.office.accounts, LANDING)
        self.office.close()
        self.go_on_until(lambda: not self.office.pid, FORCED_LANDING)
        for pid in filter(None, (self.office.pid, self.upkeep)):
            kill(pid, signal.SIGKILL)
        if self.office.accounts:
            left = len(self.office.accounts)
            logger.error("%d attempts could not be put back; others take them over in seconds", left)
        return 128 + self.signals[-1] if len(self.signals) > 1 else 0

    def go_on_until(self, is_over: Callable[[], bool], seconds: float, forced: float = FORCED_LANDING) -> None:
        """
        Go on burying and enforcing until something is so, or the time is over, which a second signal shortens.
        """
        began = time.monotonic()
        while True:
            self.reap()
            if self.office.accounts:
                self.office.staff(self.fork)
            self.children.enforce()
            patience = min(seconds, forced) if len(self.signals) > 1 else seconds
            if is_over() or time.monotonic() >= began + patience:
                return
            self.wait(TICK)


def keep_up(alias: str) -> None:
    """
    Spread the safety nets; a database that is away gets another chance at the next minute.
    """
    try:
        safety_nets.spread(alias)
    except DatabaseError as error:
        logger.warning("Upkeep has to wait for its next turn: %s", error)
