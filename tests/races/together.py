"""
Run work in threads of their own, each with its own connections, and see who waits for whom.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection, connections

from django_logic import Action, Transition
from tests.app.hooked import fresh, hooked
from tests.app.models import Ticket

#: Seconds after which a thread or a condition that does not come fails the test.
PATIENCE = 30

#: Asks the server whether a session waits for a lock that another one holds.
WAITS_FOR_A_LOCK = {
    "postgresql": "SELECT cardinality(pg_blocking_pids(%s)) > 0",
    "mysql": (
        "SELECT COUNT(*) > 0 FROM information_schema.innodb_trx"
        " WHERE trx_mysql_thread_id = %s AND trx_state = 'LOCK WAIT'"
    ),
}
SESSION_ID = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}


@dataclass
class Outcome:
    """
    Hold what one thread returned or raised.
    """

    value: Any = None
    error: BaseException | None = None


class Worker:
    """
    Run one callable in a thread, started at once.
    """

    def __init__(self, work: Callable[[], Any], gate: threading.Barrier | None = None) -> None:
        self.outcome = Outcome()
        self.session: int | None = None
        self.is_connected = threading.Event()
        self._work, self._gate = work, gate
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            connection.ensure_connection()
            self.session = session_id()
            self.is_connected.set()
            if self._gate is not None:
                self._gate.wait(PATIENCE)
            self.outcome.value = self._work()
        except BaseException as error:
            self.outcome.error = error
        finally:
            connections.close_all()

    def waits_for_a_lock(self) -> bool:
        """
        Ask the server whether this thread's session waits for somebody else's lock.
        """
        with connection.cursor() as cursor:
            cursor.execute(WAITS_FOR_A_LOCK[connection.vendor], [self.session])
            return bool(cursor.fetchone()[0])

    def until_it_waits(self) -> None:
        """
        Return once the session waits for a lock; fail when it ends or never does.
        """
        assert self.is_connected.wait(PATIENCE)
        until(lambda: self.waits_for_a_lock() or not self._thread.is_alive())
        assert self._thread.is_alive(), f"it ended without waiting: {self.outcome}"

    def join(self) -> Outcome:
        """
        Return how it ended; fail when it does not.
        """
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the thread did not end"
        return self.outcome

    def result(self) -> Any:
        """
        Return what it returned, or raise what it raised.
        """
        outcome = self.join()
        if outcome.error is not None:
            raise outcome.error
        return outcome.value


def session_id() -> int | None:
    """
    Return what the server calls this thread's session, None where there is no server.
    """
    if connection.vendor not in SESSION_ID:
        return None
    with connection.cursor() as cursor:
        cursor.execute(SESSION_ID[connection.vendor])
        return int(cursor.fetchone()[0])


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """
    Return as soon as a condition holds; fail when it never does.
    """
    # InnoDB shows who waits from a snapshot that it keeps while somebody asks more often than every tenth of a second.
    interval = 0.15 if connection.vendor == "mysql" else 0.01
    pause = threading.Event()
    for _ in range(int(seconds / interval)):
        if condition():
            return
        pause.wait(interval)
    pytest.fail("what the test waits for never happened")


def together(works: Sequence[Callable[[], Any]]) -> list[Outcome]:
    """
    Run callables at the same moment and return how each ended, in their order.
    """
    gate = threading.Barrier(len(works))
    workers = [Worker(work, gate) for work in works]
    return [worker.join() for worker in workers]


def needs_visible_waits() -> None:
    """
    Skip a test that has to see one session wait for another.
    """
    if connection.vendor not in WAITS_FOR_A_LOCK:
        pytest.skip(f"{connection.vendor} can't say who waits for a lock")


def execute(sql: str) -> None:
    """
    Send one statement in this thread's session.
    """
    with connection.cursor() as cursor:
        cursor.execute(sql)


@contextmanager
def held_by_another(ticket: Ticket, lock: str) -> Iterator[None]:
    """
    Have another thread work on an object for as long as the block lasts.
    """
    reached, may_end = threading.Event(), threading.Event()

    def occupy(instance: Any, **kwargs: Any) -> None:
        reached.set()
        assert may_end.wait(PATIENCE)

    with hooked(Action("occupy", "*", side_effects=[occupy], lock=lock), Transition("x", ["new"], "x"), field="state"):
        worker = Worker(lambda: fresh(ticket).probe.occupy())
        assert reached.wait(PATIENCE)
    try:
        yield
    finally:
        may_end.set()
    assert worker.result() is True
