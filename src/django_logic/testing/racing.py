"""
Several calls at the same moment, each on a connection of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Barrier, Thread
from typing import Any

from django.db import connections

__all__ = ["RaceResult", "race"]


@dataclass(frozen=True, slots=True)
class RaceResult:
    """
    Hold what one racer returned, or what it raised.
    """

    value: Any = None
    error: BaseException | None = None

    @property
    def answer(self) -> Any:
        """
        Return what it raised, or else what it returned.
        """
        return self.value if self.error is None else self.error


def race(*racers: Callable[[], Any], patience: float = 30.0) -> list[RaceResult]:
    """
    Run functions in threads that start together, and return what came of each, in the order given.

    Each has connections of its own, which see committed data only, so the test must commit what they need: use
    `ProcessScenario`, `TransactionTestCase` or ``django_db(transaction=True)``. Load an instance in
    each racer. Units: seconds until a racer that does not return fails the test.
    Raises: RuntimeError within a transaction, AssertionError when a racer hangs.
    """
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            raise RuntimeError(
                f"race() runs within a transaction of {connection.alias!r}, whose rows no other connection can see."
                " Run it in a test that commits."
            )
    start = Barrier(len(racers))
    results = [RaceResult() for _ in racers]
    threads = [
        Thread(target=run, args=(racer, place, start, results), daemon=True) for place, racer in enumerate(racers)
    ]
    for thread in threads:
        thread.start()
    for place, thread in enumerate(threads):
        thread.join(patience)
        if thread.is_alive():
            raise AssertionError(f"Racer {place} did not return within {patience:g} seconds: it waits for a lock.")
    return results


def run(racer: Callable[[], Any], place: int, start: Barrier, results: list[RaceResult]) -> None:
    """
    Wait for the others, run, and close the connections of the thread.
    """
    try:
        start.wait()
        results[place] = RaceResult(value=racer())
    except BaseException as error:
        results[place] = RaceResult(error=error)
    finally:
        connections.close_all()
