"""
Delivering one claim: each round publishes one message of every key, and a key whose message fails goes no further.

Nothing is published inside a transaction. The lease is renewed between calls of the publisher, and during a long one by
another thread; what was lost to another relay is left to it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any

from django_logic import tracing
from django_logic.outbox import options
from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import BrokerUnavailable, Undeliverable
from django_logic.outbox.publishers import BATCH_SIZE, Fate, Publisher, Result, dead, failed, unavailable
from django_logic.outbox.relay import mark
from django_logic.outbox.relay.claim import Claim, Item, Place

__all__ = ["Delivered", "Delivery", "deliver"]

logger = logging.getLogger("django-logic.relay")

#: What of a lease may pass before it is renewed, and before nothing more is begun under it.
RENEW_AFTER, STOP_AFTER = 0.4, 0.8
GONE = "[gone] the message of this delivery was deleted."
LOST = (
    "[lost] the relay that had it died or was frozen, {attempts} times. Look for what kills it, or hangs until it is"
    " killed, then replay."
)


@dataclass(slots=True)
class Delivered:
    """
    Say what became of a claim: how many fates of each kind, and why the destination took nothing, if so.
    """

    fates: Counter[Fate] = field(default_factory=Counter)
    outage: str = ""


class Delivery:
    """
    Work through one claim.
    """

    def __init__(
        self, alias: str, claim: Claim, publisher: Publisher, must_stop: Callable[[], bool], suspects: set[Place]
    ) -> None:
        self.alias, self.claim, self.publisher, self.must_stop = alias, claim, publisher, must_stop
        self.suspects = suspects
        self.leased_at = claim.leased_at
        self.lease = options.lease_seconds()
        self.sent: list[Item] = []
        self.closed: set[Place] = set()
        self.waiting = {item.pk: item for run in claim.runs.values() for item in run}
        self.result = Delivered()

    def run(self) -> Delivered:
        """
        Publish and mark everything that can be.
        """
        size = getattr(self.publisher, "batch_size", BATCH_SIZE)
        try:
            for batch in self.batches(size):
                if not self.may_go_on():
                    break
                self.publish(batch)
                if self.result.outage:
                    break
        finally:  # whatever breaks, what has arrived is not told again
            self.mark_sent()
        mark.release(self.alias, self.claim.token, list(self.waiting.values()), self.result.outage)
        return self.result

    def batches(self, size: int) -> Iterator[Sequence[Item]]:
        """
        Yield messages of different keys whose keys are not closed, the oldest of each first, and suspects' last.
        """
        runs = self.claim.runs.items()
        others = [run for place, run in runs if place not in self.suspects]
        last = [run for place, run in runs if place in self.suspects]
        for members in chain(zip_longest(*others), zip_longest(*last)):
            found = [item for item in members if item is not None]
            for start in range(0, len(found), size):
                batch = [item for item in found[start : start + size] if item.place not in self.closed]
                if batch:
                    yield batch

    def may_go_on(self) -> bool:
        """
        Tell whether to begin another call: nobody wants an end, and the rest is still ours.
        """
        if self.must_stop():
            return False
        if not self.is_renewal_due():
            return True
        self.mark_sent()
        if time.monotonic() - self.leased_at > self.lease * STOP_AFTER or not self.renew():
            logger.warning("A lease ran out under a slow publisher; %d messages go back", len(self.waiting))
            return False
        return True

    def is_renewal_due(self) -> bool:
        """
        Tell whether so much of the lease has passed that it has to be renewed.
        """
        return time.monotonic() - self.leased_at >= self.lease * RENEW_AFTER

    def renew(self) -> bool:
        """
        Keep what is not marked yet for another lease; False when not all of it was still ours. Any thread may call it.
        """
        now = time.monotonic()
        is_ours = mark.renew(self.alias, self.claim.token, [*self.waiting.values(), *self.sent])
        if is_ours:
            self.leased_at = now
        return is_ours

    def publish(self, batch: Sequence[Item]) -> None:
        """
        Publish a batch, and note what became of each message.
        """
        fit = [item for item in batch if self.is_fit(item)]
        events = [item.event for item in fit if item.event is not None]
        if not events:
            return
        with tracing.publishing(events):
            results = results_of(self.publisher, events)
        if results is None:
            self.publish_apart(fit)
            return
        for item, result in zip(fit, results, strict=True):
            self.settle(item, result)

    def publish_apart(self, items: Sequence[Item]) -> None:
        """
        Publish messages one by one, since one of them broke the call for all.
        """
        for item in items:
            if self.result.outage or not self.may_go_on():
                return
            self.publish([item])

    def is_fit(self, item: Item) -> bool:
        """
        Tell whether a message can be published; one that can't is dead.
        """
        if item.event is None:
            self.settle(item, dead(GONE))
        elif item.attempt > options.max_attempts():
            made = item._replace(attempt=item.attempt - 1)  # this one is none
            self.settle(made, dead(LOST.format(attempts=made.attempt), item.event.handled))
        else:
            return True
        return False

    def settle(self, item: Item, result: Result) -> None:
        """
        Note one fate; a message that did not arrive closes its key for this claim.
        """
        if result.fate is Fate.UNAVAILABLE:
            self.closed.add(item.place)
            if not self.result.outage:  # what comes behind the first one may not have been tried
                self.suspects.add(item.place)
            self.result.outage = result.error or "the destination takes nothing"
            return
        del self.waiting[item.pk]
        if result.fate is Fate.SENT:
            self.suspects.discard(item.place)
            self.sent.append(item)
            self.result.fates[Fate.SENT] += 1
            return
        self.closed.add(item.place)
        if result.fate is Fate.PUT_OFF:
            mark.put_off(self.alias, self.claim.token, item, result)
            self.result.fates[Fate.PUT_OFF] += 1
            return
        fate = mark.mark_failed(self.alias, self.claim.token, item, result)
        if fate is not None:
            self.result.fates[fate] += 1
            log_failure(item, fate, result)

    def mark_sent(self) -> None:
        """
        Mark what has arrived so far.
        """
        marked = mark.mark_sent(self.alias, self.claim.token, self.sent)
        if marked < len(self.sent):
            logger.warning("%d messages were delivered under a lease that is lost", len(self.sent) - marked)
        self.sent = []


def deliver(
    alias: str,
    claim: Claim,
    publisher: Publisher,
    must_stop: Callable[[], bool] = lambda: False,
    suspects: set[Place] | None = None,
) -> Delivered:
    """
    Publish what was claimed, and mark it; what could not be attempted goes back without an attempt.

    ``suspects`` are keys at which the destination fell silent: they may be to blame, and are tried behind all others.
    They come and go here, and the caller keeps them from one claim to the next.
    """
    return Delivery(alias, claim, publisher, must_stop, set() if suspects is None else suspects).run()


def results_of(publisher: Publisher, events: Sequence[Event]) -> Sequence[Result] | None:
    """
    Publish, and read an exception as the fate of an event; None where it could be that of any of several.
    """
    answer: Any = None
    try:
        answer = publisher.publish(events)
    except BrokerUnavailable as error:
        return [unavailable(str(error))] * len(events)
    except Exception as error:
        logger.exception("%s failed for %d events", type(publisher).__name__, len(events))
        if len(events) > 1:
            return None
        return [dead(error) if isinstance(error, Undeliverable) else failed(error)]
    results = list(answer) if isinstance(answer, Sequence) else [answer]
    if len(results) != len(events) or not all(isinstance(result, Result) for result in results):
        wanted = f"{type(publisher).__name__} has to answer with a Result for each of {len(events)} events"
        return [failed(f"{wanted}; found {len(results)} of {type(answer).__name__}.")] * len(events)
    return results


def log_failure(item: Item, fate: Fate, result: Result) -> None:
    """
    Say that a message did not arrive; its payload is nobody's business here.
    """
    level = logging.ERROR if fate is Fate.DEAD else logging.WARNING
    named = "?" if item.event is None else f"{item.event.topic} {item.event.id}"
    logger.log(
        level, "%s of %s is %s after attempt %d: %s", named, item.place[1], fate.value, item.attempt, result.error
    )
