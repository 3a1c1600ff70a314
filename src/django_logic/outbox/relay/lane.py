"""
One destination's thread: claim, deliver, look again; it pauses alone when its broker is away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

from django.db import DatabaseError, InterfaceError, close_old_connections, connections, reset_queries

from django_logic.backoff import Backoff
from django_logic.outbox import destinations
from django_logic.outbox.publishers import Fate
from django_logic.outbox.relay import mark
from django_logic.outbox.relay.claim import BEGINNING, Place, claim
from django_logic.outbox.relay.delivering import Delivery
from django_logic.outbox.relay.wake import looks

__all__ = ["Lane"]

logger = logging.getLogger("django-logic.relay")

#: How long a destination that takes nothing is left alone, from the first time on.
OUTAGE = Backoff(first=1.0, limit=30.0, jitter=0.25)
#: How long to wait after the database failed, and how often attempts are added to the tally; seconds.
DATABASE_PAUSE, COUNT_EVERY = 1.0, 5.0
#: How much a claim takes where every event is a call of its own, and elsewhere: keys.
FEW, MANY = 20, 100


class Lane:
    """
    Deliver the events of one destination until told to stop.
    """

    def __init__(self, alias: str, destination: str, name: str, poll: float, must_stop: Callable[[], bool]) -> None:
        self.alias, self.destination, self.name, self.poll = alias, destination, name, poll
        self.must_stop = must_stop
        #: Set by whoever has news: an event, or the end.
        self.news = threading.Event()
        self.publisher = destinations.make_publisher(destination)
        self.keys = FEW if getattr(self.publisher, "batch_size", MANY) < FEW else MANY
        self.after = BEGINNING
        #: What is being delivered, for who keeps its lease.
        self.delivery: Delivery | None = None
        self.outages = 0
        #: Keys of events that may have brought the destination down, rather than met it so.
        self.suspects: set[Place] = set()
        self.fates: Counter[Fate] = Counter()
        self.count_at = time.monotonic() + COUNT_EVERY
        self.pauses: Iterator[float] = looks(poll)

    def run(self) -> None:
        """
        Live the life of the thread; a database that is away is waited for.
        """
        try:
            while not self.must_stop():
                try:
                    self.turn()
                except (DatabaseError, InterfaceError) as error:
                    logger.warning("%s: the database failed (%s); trying again", self.destination, error)
                    connections.close_all()
                    self.wait(DATABASE_PAUSE)
            with suppress(DatabaseError, InterfaceError):
                self.count()
        finally:
            self.publisher.close()
            connections.close_all()

    def turn(self) -> None:
        """
        Claim and deliver once, or wait.
        """
        if self.news.is_set():
            # Before the look, so that what comes meanwhile is not waited for; those without a word come soon after one.
            self.news.clear()
            self.pauses = looks(self.poll)
        close_old_connections()
        reset_queries()
        # One message finds out whether the destination is back, each time another one: it may be to blame itself.
        keys, run = (1, 1) if self.outages else (self.keys, 10)
        claimed = claim(self.alias, self.destination, after=self.after, keys=keys, run=run, relay=self.name)
        was_whole = self.after == BEGINNING
        self.after = claimed.end
        if not claimed:
            if was_whole:
                self.suspects.clear()  # nothing of theirs is due, if it has not arrived by another relay
                self.rest()
            return
        self.pauses = looks(self.poll)
        self.delivery = Delivery(self.alias, claimed, self.publisher, self.must_stop, self.suspects)
        try:
            delivered = self.delivery.run()
        finally:
            self.delivery = None
        self.fates.update(delivered.fates)
        if delivered.outage:
            self.pause(delivered.outage)
        elif self.outages:
            logger.info("%s takes events again", self.destination)
            self.outages = 0
        if time.monotonic() > self.count_at:
            self.count()

    def rest(self) -> None:
        """
        Wait for news, or the next look.
        """
        pause = next(self.pauses)
        if pause >= self.poll:
            self.count()
        self.wait(pause)

    def pause(self, why: str) -> None:
        """
        Leave the destination alone for a while; news don't shorten it.
        """
        self.outages += 1
        self.fates[Fate.UNAVAILABLE] += 1
        pause = OUTAGE.pause(self.outages)
        logger.warning("%s takes nothing (%s); trying again in %.1f s", self.destination, why, pause)
        until = time.monotonic() + pause
        while not self.must_stop() and (left := until - time.monotonic()) > 0:
            self.news.clear()
            self.wait(left)

    def wait(self, seconds: float) -> bool:
        """
        Wait for news; return whether there are any.
        """
        return not self.must_stop() and self.news.wait(seconds)

    def count(self) -> None:
        """
        Add the attempts since the last time to the tally.
        """
        self.count_at = time.monotonic() + COUNT_EVERY
        fates, self.fates = self.fates, Counter()
        if fates:
            mark.count(self.alias, self.destination, fates)
