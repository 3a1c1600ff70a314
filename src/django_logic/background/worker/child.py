"""
One attempt child: claim, run, clean up, again; between attempts it waits for a wake-up or the next due time.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import select
import signal
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.cache import caches, close_caches
from django.db import DatabaseError, connections, reset_queries
from django.utils import timezone, translation

from django_logic import tracing
from django_logic.background import attempt, claim, settle
from django_logic.background.declared import declared_lanes
from django_logic.background.lanes import Lanes, lanes_of, next_due
from django_logic.background.models import TransitionMessage
from django_logic.background.settle import Ended
from django_logic.background.worker.board import Board, Phase
from django_logic.background.worker.plan import WorkerPlan

__all__ = ["Child"]

logger = logging.getLogger("django-logic.worker")

#: How often lanes are looked up, and how often a search goes below its floors; seconds.
LANES_EVERY, LIFT_EVERY = 10.0, 1.0
#: A worker that can't reach the database tries again after this long, growing; seconds.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
#: After how many attempts a child's size is taken as its own, and how often it is looked at.
GROWN_UP, LOOK_EVERY = 20, 20


class Child:
    """
    Live one attempt child's life.
    """

    def __init__(self, place: int, board: Board, plan: WorkerPlan, wake: tuple[int, int]) -> None:
        self.place, self.board, self.plan = place, board, plan
        self.wake_reader, self.wake_writer = wake
        self.is_stopping = False
        #: Whether a hook left a transaction open, which nothing can end any more.
        self.is_spoilt = False
        self.attempts = 0
        self.claim_us = 0
        self.size = 0
        self.lanes = Lanes(())
        self.looked_up = self.lifted = float("-inf")
        self.parent = os.getppid()
        self.signal_reader, self.signal_writer = os.pipe()

    def live(self) -> None:
        """
        Work until told to stop, worn out, or, when draining, until nothing is due.
        """
        os.set_blocking(self.signal_writer, False)
        os.set_blocking(self.signal_reader, False)
        signal.set_wakeup_fd(self.signal_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self.stop)
        for name in settings.CACHES:
            # Made here, so that the attempts, each in a context of its own, share it. One that can't be made may not
            # be needed.
            with contextlib.suppress(Exception):
                _ = caches[name]
        pause = FIRST_PAUSE
        while not self.is_stopping and not self.is_worn_out() and os.getppid() == self.parent:
            try:
                is_going_on = self.turn()
                pause = FIRST_PAUSE
            except (DatabaseError, OSError) as error:
                logger.warning("%s can't work: %s. Trying again in %.1f s", self.plan.label, error, pause)
                self.say(Phase.OFFLINE)
                forget_connections()
                self.wait(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
                continue
            if not is_going_on and self.plan.is_draining:
                self.say(Phase.DRAINED)
                return
        self.say(Phase.LEAVING)

    def stop(self, _number: int, _frame: Any) -> None:
        """
        Finish the attempt that runs and claim no more.
        """
        self.is_stopping = True

    def say(self, phase: Phase, **facts: Any) -> None:
        """
        Tell the parent what this child does.
        """
        self.board.write(self.place, phase, attempts=self.attempts, claim_us=self.claim_us, **facts)

    def turn(self) -> bool:
        """
        Claim and run one row, or wait for one; return whether there was one.
        """
        message = self.claim()
        if message is None:
            self.say(Phase.IDLE)
            if not self.plan.is_draining:
                # A row that came between the claim and the word "idle" would wake nobody, so look once more; one that
                # comes due meanwhile is either counted on or found.
                patience = self.patience()
                message = self.claim()
                if message is None:
                    self.wait(patience)
            if message is None:
                return False
        if self.is_stopping:
            settle.put_back(message, self.plan.alias, 0)
            return False
        self.run(message)
        return True

    def claim(self) -> TransitionMessage | None:
        """
        Claim the row that is due first.
        """
        now = time.monotonic()
        if now - self.looked_up >= LANES_EVERY:
            self.lanes = lanes_of(self.plan.alias, self.plan.queues, declared_lanes())
            self.looked_up = self.lifted = now
        elif now - self.lifted >= LIFT_EVERY:
            self.lanes.lift()
            self.lifted = now
        message = self.take()
        if message is None and self.lanes.lift():
            self.lifted = now
            message = self.take()
        return message

    def take(self) -> TransitionMessage | None:
        """
        Claim once, and note how long that took.
        """
        began = time.perf_counter()
        message = claim.take_next(
            self.plan.alias,
            self.lanes,
            worker=self.plan.label,
            code_version=self.plan.code_version,
            besides=self.board.held(besides=self.place),
        )
        self.claim_us = int((time.perf_counter() - began) * 1_000_000)
        return message

    def run(self, message: TransitionMessage) -> None:
        """
        Run an attempt where nothing it leaves behind reaches the next one.
        """
        limit = message.timeout_seconds
        deadline = time.monotonic() + limit if limit else 0.0
        self.say(Phase.RUNNING, message_id=message.pk, token=message.claim_token, deadline=deadline)
        if self.board.has_idle(besides=self.place):
            self.pass_on()
        try:
            contextvars.copy_context().run(self.run_attempt, message)
        finally:
            self.attempts += 1
        self.say(Phase.IDLE)
        self.is_spoilt = not clean_up()

    def run_attempt(self, message: TransitionMessage) -> None:
        """
        Run an attempt within the trace of its call.
        """
        with tracing.around(message):
            outcome = attempt.run_claimed(message, self.plan.alias)
        if outcome.ended not in (Ended.SUCCEEDED, Ended.RETRY):
            logger.info("%s: %s", message, outcome.ended)

    def pass_on(self) -> None:
        """
        Wake a sibling: where one row came, another may have come with it.
        """
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self.wake_writer, b"x")

    def patience(self) -> float:
        """
        Return how long to wait for a wake-up at most.
        """
        due = next_due(self.plan.alias, self.lanes)
        return self.plan.poll if due is None else min(self.plan.poll, due + 0.001)

    def wait(self, seconds: float) -> None:
        """
        Wait for a wake-up, a signal or the time to pass.
        """
        if self.is_stopping:
            return
        ready, _, _ = select.select([self.wake_reader, self.signal_reader], [], [], seconds)
        for source in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(source, 65536)  # one word is as good as many: who finds a row wakes the next one

    def is_worn_out(self) -> bool:
        """
        Tell whether a fresh child should take over: by attempts, or by memory that grows.
        """
        if self.is_spoilt or self.attempts >= self.plan.max_attempts_per_child:
            return True
        if self.plan.max_growth and self.attempts >= GROWN_UP and self.attempts % LOOK_EVERY == 0:
            size = resident_kib()
            self.size = self.size or size
            return size > self.size + self.plan.max_growth * 1024
        return False


def resident_kib() -> int:
    """
    Return how much memory this process holds; 0 where the system does not say.
    """
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def forget_connections() -> None:
    """
    Close connections that may be broken; what they had open is lost with them.
    """
    for connection in connections.all(initialized_only=True):
        with contextlib.suppress(Exception):
            connection.close()


def clean_up() -> bool:
    """
    Reset what Django resets between requests, and what a hook may have left; return whether that is possible.
    """
    reset_queries()
    close_caches()
    timezone.deactivate()
    translation.deactivate()
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            logger.error("A hook left a transaction of %r open; its process is replaced", connection.alias)
            return False
        if connection.errors_occurred or connection.connection is not None:
            connection.close_if_unusable_or_obsolete()
    return True
