"""
Let things happen at the same time: real threads, each with a database connection of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Event
from typing import Any, TypeVar

from django.db import connections

from example.shop.warehouse import Warehouse

__all__ = ["SlowAnswer", "apart", "at_once", "slow_answer"]

T = TypeVar("T")
PATIENCE_SECONDS = 30.0


def at_once(work: Callable[[Any, Barrier], T], argument: Any, *, workers: int) -> list[T]:
    """
    Run the same work in several threads; the barrier it is handed lets all of them go together.

    Raises: what any of them raises.
    """
    barrier = Barrier(workers, timeout=PATIENCE_SECONDS)
    with ThreadPoolExecutor(workers) as pool:
        running = [apart(pool, work, argument, barrier) for _ in range(workers)]
        return [worker.result() for worker in running]


def apart(pool: ThreadPoolExecutor, work: Callable[..., T], *arguments: Any) -> Future[T]:
    """
    Start work in a thread that closes its connections when it is done.
    """

    def run() -> T:
        try:
            return work(*arguments)
        finally:
            connections.close_all()

    return pool.submit(run)


class SlowAnswer:
    """
    Hold a remote call open: know that it was made, and decide when it is answered.
    """

    def __init__(self) -> None:
        self.asked = Event()
        self.answered = Event()

    def keep_waiting(self) -> None:
        """
        Wait in the caller's thread until the answer is given.
        """
        self.asked.set()
        self.answered.wait(PATIENCE_SECONDS)

    def wait_until_asked(self) -> None:
        """
        Return once somebody waits for the answer.
        """
        if not self.asked.wait(PATIENCE_SECONDS):
            raise TimeoutError("The warehouse was not asked.")


@contextmanager
def slow_answer(warehouse: Warehouse) -> Iterator[SlowAnswer]:
    """
    Make the warehouse keep its callers waiting; however the block ends, they get their answer.
    """
    call = SlowAnswer()
    warehouse.while_answering = call.keep_waiting
    try:
        yield call
    finally:
        warehouse.while_answering = lambda: None
        call.answered.set()
