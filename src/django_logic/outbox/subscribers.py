"""
Functions in Python that are told of events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeVar

from django.core.exceptions import ImproperlyConfigured

from django_logic.callables import never_runs

__all__ = ["Subscriber", "forget", "subscribe", "subscribers", "subscribers_of"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Subscriber(NamedTuple):
    """
    Hold one function, the topics it wants, and the name it is known by.
    """

    name: str
    topics: tuple[str, ...]
    function: Callable[..., Any]


_subscribers: dict[str, Subscriber] = {}


def subscribe(*topics: Any) -> Callable[[FunctionT], FunctionT]:
    """
    Call a function with every event of these topics, at least once and in order per object; ``order.*`` takes many.

    It runs in the relay, outside any transaction, and again after an error: its work has to be idempotent, for which
    there is `django_logic.outbox.inbox`. Modules named ``subscribers`` in installed apps are imported at start.
    Raises: ImproperlyConfigured for no topic, or a function whose work would not run.

    Example::

        @subscribe("order.fulfilled")
        def thank_the_customer(event): ...
    """
    if not topics or not all(isinstance(topic, str) and topic for topic in topics):
        raise ImproperlyConfigured(
            f'django_logic.outbox.subscribe takes topics; found {topics!r}. Write @subscribe("order.fulfilled").'
        )

    def register(function: FunctionT) -> FunctionT:
        name = f"{function.__module__}.{function.__qualname__}"
        if never_runs(function):
            raise ImproperlyConfigured(
                f"{name}: a subscriber is a plain function; calling this one only makes a coroutine or a generator."
                " For async code use async_to_sync."
            )
        _subscribers[name] = Subscriber(name, topics, function)
        return function

    return register


def forget(function: Callable[..., Any]) -> None:
    """
    Tell a function of no more events.
    """
    for name in [name for name, entry in _subscribers.items() if entry.function is function]:
        del _subscribers[name]


def subscribers() -> list[Subscriber]:
    """
    Return every subscriber.
    """
    return list(_subscribers.values())


def subscribers_of(topic: str) -> Iterator[Subscriber]:
    """
    Yield who wants a topic.
    """
    return (entry for entry in subscribers() if any(fnmatchcase(topic, pattern) for pattern in entry.topics))
