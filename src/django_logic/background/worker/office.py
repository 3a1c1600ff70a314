"""
The parent's end of the line to its clerk: it hires one, hands it accounts, and strikes out those that have landed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from django_logic.background.worker.accounts import Account
from django_logic.background.worker.board import Board
from django_logic.background.worker.clerk import Clerk
from django_logic.background.worker.plan import WorkerPlan

__all__ = ["Office"]

logger = logging.getLogger("django-logic.worker")

#: How long to wait before a clerk is replaced; seconds.
HIRE_PAUSE = 1.0
#: For how long children leave a row alone whose account waits, and how long a clerk may be silent; seconds.
LEFT_ALONE, SILENCE = 30.0, 60.0
NOTHING = -1


class Office:
    """
    Keep a clerk, and what it has not written yet.
    """

    def __init__(self, plan: WorkerPlan, board: Board, wake_writer: int) -> None:
        self.plan, self.board, self.wake_writer = plan, board, wake_writer
        self.pid = 0
        self.accounts: list[Account] = []
        self.entered: dict[Account, float] = {}
        self.orders = self.reports = NOTHING
        self.unread = b""
        self.hire_at = 0.0
        self.heard_at = 0.0

    def staff(self, fork: Callable[[str, Callable[[], Any]], int]) -> None:
        """
        Hire a clerk if there is none, and tell it again what has not landed yet.
        """
        if self.pid:
            self.watch()
            return
        if time.monotonic() < self.hire_at:
            return
        self.hire_at = time.monotonic() + HIRE_PAUSE
        orders, reports = os.pipe(), os.pipe()

        def life() -> None:
            os.close(orders[1])
            os.close(reports[0])
            Clerk(self.plan, self.board, self.wake_writer, orders[0], reports[1]).live()

        self.pid = fork("clerk", life)
        os.close(orders[0])
        os.close(reports[1])
        self.orders, self.reports, self.unread = orders[1], reports[0], b""
        self.heard_at = time.monotonic()
        if not self.pid:
            self.close()
        for account in self.accounts:
            self.send(account)

    def watch(self) -> None:
        """
        End a clerk that has been silent for too long, as on a connection whose other side is gone.
        """
        if self.accounts:
            self.mark()
        if time.monotonic() - self.heard_at > SILENCE:
            logger.error("The clerk has said nothing for %.0f s and is replaced", SILENCE)
            self.heard_at = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """
        Close what leads to the clerk, by which it knows that it may go.
        """
        for end in (self.orders, self.reports):
            if end != NOTHING:
                os.close(end)
        self.orders = self.reports = NOTHING

    def lose(self) -> None:
        """
        Take note that the clerk has ended.
        """
        self.pid = 0
        self.close()

    def enter(self, account: Account) -> None:
        """
        Have an account written, however often that has to be tried.
        """
        self.accounts.append(account)
        self.entered[account] = time.monotonic()
        self.mark()
        self.send(account)

    def mark(self) -> None:
        """
        Keep children from the rows whose accounts wait.
        """
        since = time.monotonic() - LEFT_ALONE
        self.board.mark_pending([entry.message_id for entry in self.accounts if self.entered[entry] > since])

    def send(self, account: Account) -> None:
        """
        Hand an account to the clerk; one that dies is told again by the next one.
        """
        if self.orders != NOTHING:
            with contextlib.suppress(BrokenPipeError):
                os.write(self.orders, account.as_line())

    def read(self) -> bool:
        """
        Strike out the accounts that have landed; return whether there were any.
        """
        chunk = os.read(self.reports, 65536)
        *lines, self.unread = (self.unread + chunk).split(b"\n")
        landed = {Account.from_line(line) for line in lines if line}
        self.accounts = [account for account in self.accounts if account not in landed]
        self.entered = {account: self.entered[account] for account in self.accounts}
        self.heard_at = time.monotonic()
        self.mark()
        return bool(landed)
