"""
A relay at work: a thread for each destination and those beside them, kept by the one that hears signals.

Destinations do not wait for each other, and signals for nobody. Any number of relays may run; they share the work
by their claims.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_logic.databases import close_databases, own_databases
from django_logic.listener import Listener
from django_logic.outbox import destinations, options
from django_logic.outbox.relay.lane import Lane
from django_logic.outbox.relay.members import TICK, Ear, Keeper, Upkeep
from django_logic.wakeup import EVENTS, wakeup_pipe

__all__ = ["Relay", "RelayPlan", "accompany", "check", "sessions"]

logger = logging.getLogger("django-logic.relay")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayPlan:
    """
    Hold what a relay was asked to do. Units: seconds.
    """

    destinations: tuple[str, ...]
    alias: str = "default"
    listen_alias: str | None = None
    poll: float = 1.0
    grace: float = 30.0
    name: str = ""
    #: Whether a worker keeps this process, which alone hears a terminal's SIGINT.
    is_companion: bool = False

    @property
    def label(self) -> str:
        """
        Return how rows name this relay.
        """
        return self.name or f"{socket.gethostname()}:{os.getpid()}"


class Relay:
    """
    Run until a signal ends it.
    """

    def __init__(self, plan: RelayPlan) -> None:
        self.plan = plan
        self.signals: list[int] = []
        self.reader, self.writer = wakeup_pipe()
        self.lanes = [
            Lane(plan.alias, name, plan.label, plan.poll, must_stop=lambda: bool(self.signals))
            for name in plan.destinations
        ]
        self.ear = Ear(Listener(EVENTS, plan.listen_alias or plan.alias, plan.alias, plan.label), self.lanes)
        self.members: list[Lane | Ear | Keeper | Upkeep] = [
            *self.lanes,
            self.ear,
            Keeper(self.lanes),
            Upkeep(plan.alias),
        ]
        self.threads: dict[Lane | Ear | Keeper | Upkeep, threading.Thread] = {}

    def run(self) -> int:
        """
        Run; return the exit status: 0 for a clean stop, 128 and the signal's number for a forced one.
        """
        for number in (signal.SIGTERM,) if self.plan.is_companion else (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.note_signal)
        signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)
        close_databases()
        own_databases()
        try:
            while not self.signals:
                self.turn()
            return self.stop()
        finally:
            signal.set_wakeup_fd(-1)
            connections.close_all()

    def note_signal(self, number: int, _frame: Any) -> None:
        """
        Note that somebody wants an end.
        """
        self.signals.append(number)

    def turn(self) -> None:
        """
        Look after threads and signals once.
        """
        self.staff()
        ready, _, _ = select.select([self.reader], [], [], TICK)
        if ready:  # any signal the process handles writes there, others' too
            os.read(self.reader, 512)

    def staff(self) -> None:
        """
        Start a thread for each member that has none; one that broke is replaced.
        """
        for member in self.members:
            thread = self.threads.get(member)
            if thread is None or not thread.is_alive():
                if thread is not None:
                    logger.error("The thread of %s broke and is replaced", member.destination)
                thread = threading.Thread(target=member.run, name=f"relay-{member.destination}", daemon=True)
                self.threads[member] = thread
                thread.start()

    def stop(self) -> int:
        """
        Let each thread finish what it publishes; the rest goes back. A second signal ends it at once.
        """
        logger.info("Stopping: what is being published is finished, within %.0f s", self.plan.grace)
        deadline = time.monotonic() + self.plan.grace
        self.ear.tell()
        # The other members may wait for a server or somebody's lock, and nothing is lost with them.
        threads = {lane.destination: self.threads[lane] for lane in self.lanes if lane in self.threads}
        while any(thread.is_alive() for thread in threads.values()):
            left = deadline - time.monotonic()
            if left <= 0 or len(self.signals) > 1:
                stuck = [name for name, thread in threads.items() if thread.is_alive()]
                logger.error("%s did not finish; others deliver it when its lease is over", ", ".join(stuck))
                return 128 + self.signals[0]
            for thread in threads.values():
                thread.join(min(left, 0.05))
        return 0


def accompany(*, alias: str, listen_alias: str | None, grace: float, name: str) -> None:
    """
    Live as a process of a worker: deliver to every destination until SIGTERM.
    """
    plan = RelayPlan(
        destinations=tuple(destinations.names()),
        alias=alias,
        listen_alias=listen_alias,
        grace=grace,
        name=name,
        is_companion=True,
    )
    logger.info("Relay (pid %d): %s", os.getpid(), ", ".join(plan.destinations))
    if status := Relay(plan).run():
        logging.shutdown()
        os._exit(status)


def check() -> None:
    """
    Check that a relay could deliver; nothing is connected.

    Raises: ImproperlyConfigured.
    """
    if not options.has_own_relay():
        raise ImproperlyConfigured("DJANGO_LOGIC['OUTBOX_RELAY'] is 'none': somebody else delivers events. Use 'own'.")
    for name in destinations.names():
        destinations.make_publisher(name)


def sessions() -> int:
    """
    Return how many database connections a relay opens at most: one for each destination, and those of `members`, of
    which who hears of events has a second one to prove the first.
    """
    return len(destinations.names()) + 4
