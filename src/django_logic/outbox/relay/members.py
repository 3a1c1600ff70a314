"""
What works in a relay beside its destinations, each in a thread of its own that may wait for a server or a lock.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Sequence

from django.db import DatabaseError, InterfaceError, connections

from django_logic.listener import Listener
from django_logic.outbox.relay.lane import Lane
from django_logic.outbox.relay.purging import forget_taken, purge_batch

__all__ = ["TICK", "Ear", "Keeper", "Upkeep"]

logger = logging.getLogger("django-logic.relay")

#: How often to look at threads, leases and the clock, and how often to purge; seconds.
TICK, PURGE_EVERY = 1.0, 60.0
#: The shortest lease is a second, so two looks come between what is due and what is too late; seconds.
KEEP_EVERY = 0.2


class Ear:
    """
    Hear that there are events, and tell every lane. A database that does not answer keeps it waiting, and nobody else.
    """

    destination = "wake-ups"

    def __init__(self, listener: Listener, lanes: Sequence[Lane]) -> None:
        self.listener = listener
        self.lanes = lanes

    def run(self) -> None:
        """
        Live the life of the thread, which ends with the process.
        """
        while True:
            self.turn()

    def turn(self) -> None:
        """
        Wait for words once.
        """
        if self.listener.attend():
            self.tell()
        heard = self.listener.fileno()
        if heard is None:
            time.sleep(TICK)
        elif select.select([heard], [], [], TICK)[0] and self.listener.heard():
            self.tell()

    def tell(self) -> None:
        """
        Tell every lane that there are news.
        """
        for lane in self.lanes:
            lane.news.set()


class Keeper:
    """
    Keep the leases of lanes whose destination takes long, so that no other relay begins the same anew meanwhile.

    A relay that is dead or stopped keeps none.
    """

    destination = "leases"

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.lanes = lanes

    def run(self) -> None:
        """
        Live the life of the thread, which ends with the process.
        """
        while True:
            time.sleep(KEEP_EVERY)
            self.keep()

    def keep(self) -> None:
        """
        Renew what has to be renewed now.
        """
        for lane in self.lanes:
            delivery = lane.delivery
            if delivery is None or not delivery.is_renewal_due():
                continue
            try:
                delivery.renew()
            except (DatabaseError, InterfaceError) as error:
                logger.warning("%s: a lease could not be renewed (%s)", lane.destination, error)
            finally:
                connections.close_all()


class Upkeep:
    """
    Delete what is old.
    """

    destination = "upkeep"

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def run(self) -> None:
        """
        Live the life of the thread, which ends with the process.
        """
        pause = PURGE_EVERY
        while True:
            time.sleep(pause)
            began = time.monotonic()
            # Others get as much of the disk between two batches as these take.
            pause = min(TICK, time.monotonic() - began) if self.delete() else PURGE_EVERY

    def delete(self) -> bool:
        """
        Delete a batch; return whether there was one, which calls for the next at once.
        """
        try:
            return bool(purge_batch(self.alias) or forget_taken(self.alias))
        except (DatabaseError, InterfaceError) as error:
            logger.warning("Old events could not be deleted now: %s", error)
            return False
        finally:
            connections.close_all()
