"""
What a relay hands events to: subscribers in Python, or a broker. One module each, thin over its library.

A publisher delivers and says what became of each event. Retries, pauses and order are the relay's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from django_logic.outbox.event import Event

__all__ = ["BATCH_SIZE", "Fate", "Publisher", "Result", "dead", "failed", "put_off", "sent", "told", "unavailable"]

#: How many events a call of `Publisher.publish` gets at most, where a publisher's ``batch_size`` does not say.
BATCH_SIZE = 100


class Fate(StrEnum):
    """
    Name what became of one event.
    """

    #: It has arrived: the broker said so.
    SENT = "sent"
    #: It has not, or nobody knows; another attempt may help.
    FAILED = "failed"
    #: It has not and never will as it is.
    DEAD = "dead"
    #: It can't be taken for now, for reasons of its own; that is no attempt.
    PUT_OFF = "put_off"
    #: Nothing arrives for now, whatever is sent.
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """
    Hold the fate of one event, why, and which subscribers need not get it again.
    """

    fate: Fate
    error: str = ""
    handled: frozenset[str] = frozenset()


class Publisher(Protocol):
    """
    Deliver events to one destination. Made from ``BACKEND`` and ``OPTIONS`` by the relay, used by one thread.

    Nothing is connected before the first call, and what broke is connected anew in the next one.
    """

    def publish(self, events: Sequence[Event]) -> Sequence[Result]:
        """
        Deliver events of different keys, and return their fates in the same order.

        Transaction: none is open. Raises: BrokerUnavailable when none was delivered; any other exception counts
        as an attempt of each that failed.
        """

    def close(self) -> None:
        """
        Let go of connections; a later `publish` connects again.
        """


def sent() -> Result:
    """
    Say that an event has arrived.
    """
    return Result(fate=Fate.SENT)


def failed(error: BaseException | str, handled: frozenset[str] = frozenset()) -> Result:
    """
    Say that an event should be tried again.
    """
    return Result(fate=Fate.FAILED, error=told(error), handled=handled)


def dead(error: BaseException | str, handled: frozenset[str] = frozenset()) -> Result:
    """
    Say that an event can't be delivered as it is.
    """
    return Result(fate=Fate.DEAD, error=told(error), handled=handled)


def put_off(error: BaseException | str, handled: frozenset[str] = frozenset()) -> Result:
    """
    Say that an event should come again later, and others should not wait for that.
    """
    return Result(fate=Fate.PUT_OFF, error=told(error), handled=handled)


def unavailable(error: BaseException | str) -> Result:
    """
    Say that the destination takes nothing for now.
    """
    return Result(fate=Fate.UNAVAILABLE, error=told(error))


def told(error: BaseException | str) -> str:
    """
    Return how an error is kept.
    """
    return error if isinstance(error, str) else f"{type(error).__name__}: {error}"
