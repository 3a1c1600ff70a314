"""
Let a part of a worker die at one moment, and have somebody finish what it leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from django.db import models

from tests.worker.asking import is_all_done
from tests.worker.gates import Gate
from tests.worker.harness import skip_pause, until, worker


class Victim(StrEnum):
    """
    Name what dies: the process that comes by, its parent, or all of the worker.
    """

    CHILD = "child"
    PARENT = "parent"
    BOTH = "both"

    @property
    def mark(self) -> str:
        """
        Return how the error begins that the attempt leaves: somebody saw it die, or nobody did.
        """
        return "[crashed]" if self is Victim.CHILD else "[lost]"

    def dies_once(self, point: str, gate: Gate, skip: int = 0) -> Mapping[str, Any]:
        """
        Return the plan by which one process, after `skip` others, meets its end at a test point.

        A parent is killed by the test, once a child waits at the gate.
        """
        deed = {Victim.CHILD: "kill", Victim.PARENT: gate.deed, Victim.BOTH: "kill_group"}[self]
        return {point: {"do": deed, "skip": skip, "times": 1}}


def outlive(
    victim: Victim,
    plan: Mapping[str, Any],
    gate: Gate,
    instances: Iterable[models.Model],
    settings: Mapping[str, Any] | None = None,
) -> None:
    """
    Run a worker until its `victim` has died as planned, and whoever is left, else another one, until nothing is open.

    Leases of what a dead worker had are over at once, as if their time had passed.
    """
    with worker(points=plan, settings=settings) as first:
        if victim is Victim.CHILD:
            until(is_all_done)
            assert first.is_running()
            return
        if victim is Victim.PARENT:
            gate.arrival()
            first.kill9()
            until(lambda: not first.members())
        else:
            first.wait()
    for instance in instances:
        skip_pause(instance)
    with worker(settings=settings):
        until(is_all_done)
