"""
What can go wrong with an event.
"""

from __future__ import annotations

from django_logic.exceptions import DjangoLogicException

__all__ = ["BrokerUnavailable", "PayloadRefused", "Undeliverable"]


class PayloadRefused(DjangoLogicException, ValueError):
    """
    Say that a payload can't be stored: it is no JSON object, or too large. The move it belongs to does not happen.
    """


class Undeliverable(DjangoLogicException):
    """
    Say, from a subscriber or a publisher, that another attempt would end the same way: the message is dead at once.
    """


class BrokerUnavailable(DjangoLogicException):
    """
    Say, from a publisher, that nothing can be delivered for now; from a subscriber, that what it depends on is away.

    Neither costs an attempt. The first pauses the destination, the second puts off this one event.
    """
