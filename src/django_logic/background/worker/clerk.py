"""
The clerk of a worker: hears of new rows and wakes children, says that the worker lives, and keeps its accounts.

It runs no code of the project, so nothing can hold it up for long.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import time
from collections.abc import Mapping
from typing import Any

from django.db import DatabaseError, connections

from django_logic.background.models import Worker
from django_logic.background.worker import accounts
from django_logic.background.worker.accounts import Account
from django_logic.background.worker.board import Board
from django_logic.background.worker.plan import WorkerPlan
from django_logic.clock import FromNow
from django_logic.databases import close_databases
from django_logic.extension import companion
from django_logic.listener import Listener
from django_logic.wakeup import WORK

__all__ = ["Clerk"]

logger = logging.getLogger("django-logic.worker")

#: How often the worker says that it lives, and how often what could not be written is tried again; seconds.
BEAT_EVERY, TRY_EVERY = 10.0, 0.25
#: How long to leave a database alone that could not be reached.
PATIENCE = 1.0


class Clerk:
    """
    Live the clerk's life; ``orders`` bring accounts from the parent, ``reports`` say which have landed.
    """

    def __init__(self, plan: WorkerPlan, board: Board, wake_writer: int, orders: int, reports: int) -> None:
        self.plan, self.board = plan, board
        self.wake_writer, self.orders, self.reports = wake_writer, orders, reports
        self.listener = Listener(WORK, plan.listen_alias or plan.alias, plan.alias, str(plan.worker_id))
        self.waiting: list[Account] = []
        self.unread = b""
        self.beat_at = self.try_at = 0.0
        self.has_told_budget = False

    def live(self) -> None:
        """
        Work until the parent closes the orders, or is gone.
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.set_blocking(self.orders, False)
        while True:
            if self.listener.attend():
                self.wake()
            self.beat()
            self.enter_accounts()
            self.report(b"\n")
            if not self.wait():
                break
        self.enter_accounts()
        with contextlib.suppress(DatabaseError):
            Worker.objects.using(self.plan.alias).filter(pk=self.plan.worker_id).delete()
        self.listener.close()

    def wait(self) -> bool:
        """
        Wait for words, orders or the next duty; return whether to go on.
        """
        heard = self.listener.fileno()
        sources = [self.orders] + ([heard] if heard is not None else [])
        ready, _, _ = select.select(sources, [], [], TRY_EVERY if self.waiting else 1.0)
        if heard is not None and heard in ready:
            queues = self.listener.heard()
            if any(queue in self.plan.queues or not queue for queue in queues):
                self.wake()
        return self.read_orders() if self.orders in ready else True

    def wake(self) -> None:
        """
        Wake one child if one waits; it wakes the next one if it finds a row, and busy ones look by themselves.
        """
        if not self.board.has_idle():
            return
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self.wake_writer, b"x")

    def read_orders(self) -> bool:
        """
        Take in accounts; False once the parent wants no more.
        """
        chunk = os.read(self.orders, 65536)
        *lines, self.unread = (self.unread + chunk).split(b"\n")
        self.waiting += [Account.from_line(line) for line in lines if line]
        self.try_at = 0.0
        return bool(chunk)

    def enter_accounts(self) -> None:
        """
        Write the accounts that wait; those that can't land now are tried again.
        """
        if not self.waiting or time.monotonic() < self.try_at:
            return
        self.try_at = time.monotonic() + TRY_EVERY
        for account in list(self.waiting):
            try:
                has_landed = accounts.enter(account, self.plan.alias)
            except DatabaseError as error:
                logger.warning("The end of an attempt of row %d is not written yet: %s", account.message_id, error)
                close_databases()
                self.try_at = time.monotonic() + PATIENCE
                return
            if has_landed:
                self.waiting.remove(account)
                self.wake()  # the row may be due at once
                self.report(account.as_line())

    def report(self, line: bytes) -> None:
        """
        Tell the parent that an account has landed, or with an empty line that the clerk goes on.
        """
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self.reports, line)

    def beat(self) -> None:
        """
        Say that the worker lives, which queues it serves and how it fares.
        """
        now = time.monotonic()
        if now < self.beat_at:
            return
        self.beat_at = now + BEAT_EVERY
        plan = self.plan
        claims = [slot.claim_us for slot in self.board.slots() if slot.claim_us]
        facts = {
            "last_seen_at": FromNow(),
            "is_listening": self.listener.is_listening,
            "claim_ms": max(claims) / 1000 if claims else None,
        }
        try:
            rows = Worker.objects.using(plan.alias)
            if not rows.filter(pk=plan.worker_id).update(**facts):
                rows.bulk_create([self.first_beat(facts)])
            if not self.has_told_budget:
                self.has_told_budget = True
                self.tell_budget()
        except DatabaseError as error:
            logger.warning("The worker can't say that it lives: %s", error)
            close_databases()
            self.beat_at = now + PATIENCE

    def first_beat(self, facts: Mapping[str, Any]) -> Worker:
        """
        Make the worker's row.
        """
        plan = self.plan
        return Worker(
            id=plan.worker_id,
            name=plan.label[:200],
            host=plan.host[:255],
            pid=os.getppid(),
            queues=list(plan.queues),
            concurrency=plan.concurrency,
            code_version=plan.code_version[:100],
            started_at=FromNow(),
            **facts,
        )

    def tell_budget(self) -> None:
        """
        Say how many connections the worker may open, and warn where the server has not that many left.
        """
        connection = connections[self.plan.alias]
        listening = 1 if self.listener.is_possible else 0
        companions = {name: companion(name).connections() for name in self.plan.companions}
        budget = self.plan.concurrency + 2 + listening + sum(companions.values())
        text = f"{self.plan.concurrency} for attempts, 1 for accounts, 1 for upkeep"
        text += ", 1 to listen" if listening else ""
        text += "".join(f", {count} for the {name}" for name, count in companions.items())
        logger.info("Up to %d database connections: %s", budget, text)
        if connection.vendor != "postgresql":
            return
        with connection.cursor() as cursor:
            cursor.execute(ROOM)
            allowed, used = cursor.fetchone()
        if used + budget > allowed:
            logger.warning(
                "The server allows %d connections and %d are open: %d more may not fit. Lower --concurrency, raise"
                " max_connections, or put pgbouncer in front.",
                allowed,
                used,
                budget,
            )


#: How many connections the server takes, and how many there are.
ROOM = """
SELECT CURRENT_SETTING('max_connections')::int - CURRENT_SETTING('superuser_reserved_connections')::int,
    (SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
"""
