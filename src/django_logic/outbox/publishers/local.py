"""
Telling subscribers in Python.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from django.db import connections, transaction

from django_logic.hooks import refuse_unrun
from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import BrokerUnavailable, Undeliverable
from django_logic.outbox.publishers import Fate, Result, sent, told
from django_logic.outbox.subscribers import subscribers_of

__all__ = ["Subscribers"]

logger = logging.getLogger("django-logic.relay")


class Subscribers:
    """
    Call every subscriber of an event. Who took it does not get it again when another one failed.
    """

    #: One at a time, so that a claim is never kept longer than one event takes.
    batch_size = 1

    def publish(self, events: Sequence[Event]) -> Sequence[Result]:
        """
        Call the subscribers of each event.
        """
        return [tell(event) for event in events]

    def close(self) -> None:
        """
        Let go of nothing.
        """


def tell(event: Event) -> Result:
    """
    Call the subscribers of one event that have not taken it yet; one that fails keeps no other from it.

    What a subscriber depends on is no concern of the others, so where that is away this event alone comes again later.
    """
    handled, errors, fates = set(event.handled), [], {Fate.SENT}
    for subscriber in subscribers_of(event.topic):
        if subscriber.name in handled:
            continue
        try:
            with savepoints():
                refuse_unrun(subscriber.function, subscriber.function(event))
        except BrokerUnavailable as error:
            errors.append(f"{subscriber.name}: {error}")
            fates.add(Fate.PUT_OFF)
        except Exception as error:
            logger.warning("%s failed for %s %s", subscriber.name, event.topic, event.id, exc_info=True)
            errors.append(f"{subscriber.name}: {told(error)}")
            fates.add(Fate.DEAD if isinstance(error, Undeliverable) else Fate.FAILED)
        else:
            handled.add(subscriber.name)
        finally:
            close_broken()
    worst = next(fate for fate in (Fate.DEAD, Fate.FAILED, Fate.PUT_OFF, Fate.SENT) if fate in fates)
    return Result(fate=worst, error="\n".join(errors), handled=frozenset(handled)) if errors else sent()


@contextmanager
def savepoints() -> Iterator[None]:
    """
    Guard transactions that are open already, as in tests that drain within one, from a subscriber's errors.
    """
    with ExitStack() as stack:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block and not connection.needs_rollback:
                stack.enter_context(transaction.atomic(using=connection.alias))
        yield


def close_broken() -> None:
    """
    Close connections that a subscriber broke or left with autocommit off, so that whoever comes next gets others.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
