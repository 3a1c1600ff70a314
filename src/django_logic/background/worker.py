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
from pathlib import Path
from typing import Any

from django_logic.background import safety_nets
from django_logic.background.accounts import Account
from django_logic.background.board import Board
from django_logic.background.child import Child
from django_logic.background.children import Children, describe, kill
from django_logic.background.clerk import Clerk
from django_logic.background.forking import fork, wakeup_pipe
from django_logic.background.plan import WorkerPlan

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
        self.accounts: list[Account] = []
        self.unread = b""
        self.clerk = 0
        self.clerk_pipes: tuple[int, int] = (-1, -1)
        self.upkeep = 0
        self.upkeep_at = self.upkeep_born = self.health_at = 0.0
        self.signals: list[int] = []
        self.signal_pipe = wakeup_pipe()

    def run(self) -> int:
        """
        Run; return the exit status: 0 for a clean stop, 128 and the signal's number for a forced one.
        """
        self.watch_signals()
        self.warn_of_threads()
        self.hire_clerk()
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
        if not self.clerk:
            self.hire_clerk()
        if not self.plan.is_draining or not self.children.is_closing:
            self.children.fill()
        if self.plan.is_draining:
            self.children.is_closing = True  # each child leaves when nothing is due, and is not replaced
        self.children.enforce()
        self.keep_up()
        self.tell_health(self.children.are_ready)
        self.wait(TICK)

    def wait(self, seconds: float) -> None:
        """
        Wait for a signal, a child's end, a report of the clerk, or the time to pass.
        """
        reports = self.clerk_pipes[1]
        sources = [self.signal_pipe[0], *([reports] if reports >= 0 else [])]
        ready, _, _ = select.select(sources, [], [], seconds)
        if self.signal_pipe[0] in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.signal_pipe[0], 512)
        if reports in ready:
            self.read_reports()

    def spawn_child(self, place: int) -> int:
        """
        Fork an attempt child.
        """
        return self.fork("attempt child", lambda: Child(place, self.board, self.plan, self.wake).live())

    def fork(self, role: str, life: Callable[[], Any]) -> int:
        """
        Fork a child that keeps none of the pipes it has no use for.
        """
        pipes = self.clerk_pipes

        def live() -> None:
            for end in pipes:
                if end >= 0:
                    os.close(end)
            life()

        return fork(role, live)

    def hire_clerk(self) -> None:
        """
        Fork the clerk and tell it again what has not landed yet.
        """
        orders, reports = os.pipe(), os.pipe()

        def life() -> None:
            os.close(orders[1])
            os.close(reports[0])
            Clerk(self.plan, self.board, self.wake[1], orders[0], reports[1]).live()

        self.clerk = self.fork("clerk", life)
        os.close(orders[0])
        os.close(reports[1])
        self.clerk_pipes, self.unread = (orders[1], reports[0]), b""
        for account in self.accounts:
            self.send(account)

    def dismiss_clerk(self) -> None:
        """
        Close what leads to the clerk, by which it knows that it may go.
        """
        for end in self.clerk_pipes:
            if end >= 0:
                os.close(end)
        self.clerk_pipes = (-1, -1)

    def send(self, account: Account) -> None:
        """
        Hand an account to the clerk; one that dies is told again by the next one.
        """
        with contextlib.suppress(BrokenPipeError):
            os.write(self.clerk_pipes[0], account.as_line())

    def read_reports(self) -> None:
        """
        Strike out the accounts that have landed.
        """
        chunk = os.read(self.clerk_pipes[1], 65536)
        *lines, self.unread = (self.unread + chunk).split(b"\n")
        for line in lines:
            account = Account.from_line(line)
            if account in self.accounts:
                self.accounts.remove(account)

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
            if pid == self.clerk:
                self.clerk = 0
                self.dismiss_clerk()
                if not self.children.is_closing:
                    logger.error("The clerk ended (%s) and is replaced", describe(status))
            elif pid == self.upkeep:
                self.upkeep = 0
            else:
                account = self.children.bury(pid, status)
                if account is not None:
                    self.accounts.append(account)
                    self.send(account)

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
            self.upkeep = self.fork("upkeep", lambda: safety_nets.spread(self.plan.alias))

    def is_drained(self) -> bool:
        """
        Tell whether a draining worker has nothing left to do.
        """
        is_busy = self.children.by_pid or self.upkeep or self.accounts
        return self.plan.is_draining and self.children.is_closing and not is_busy

    def tell_health(self, is_well: bool) -> None:
        """
        Keep the health file fresh while every child works or waits; take it away otherwise.
        """
        if self.plan.health_file is None:
            return
        path, now = Path(self.plan.health_file), time.monotonic()
        if not is_well:
            path.unlink(missing_ok=True)
            self.health_at = 0.0
        elif now >= self.health_at:
            self.health_at = now + HEALTH_EVERY
            path.write_text(f"{os.getpid()}\n")

    def stop(self) -> int:
        """
        Let attempts finish, end those that do not, see their accounts land, and say how it went.
        """
        self.tell_health(False)
        self.children.close()
        self.go_on_until(lambda: not self.children.by_pid or len(self.signals) > 1, self.plan.grace)
        is_forced = len(self.signals) > 1
        self.children.end()
        landing = FORCED_LANDING if is_forced else LANDING
        self.go_on_until(lambda: not self.children.by_pid, landing)
        if self.upkeep:
            kill(self.upkeep, signal.SIGKILL)
        self.go_on_until(lambda: not self.accounts, landing)
        self.dismiss_clerk()
        self.go_on_until(lambda: not self.clerk, FORCED_LANDING)
        for pid in filter(None, (self.clerk, self.upkeep)):
            kill(pid, signal.SIGKILL)
        if self.accounts:
            logger.error("%d attempts could not be put back; others take them over in seconds", len(self.accounts))
        return 128 + self.signals[-1] if is_forced else 0

    def go_on_until(self, is_over: Callable[[], bool], seconds: float) -> None:
        """
        Go on burying and enforcing until something is so, or the time is over.
        """
        deadline = time.monotonic() + seconds
        while True:
            self.reap()
            if not self.clerk and self.accounts:
                self.hire_clerk()
            self.children.enforce()
            if is_over() or time.monotonic() >= deadline:
                return
            self.wait(TICK)
