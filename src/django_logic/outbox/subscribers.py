"""
Functions in Python that are told of events.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
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
    Raises: ImproperlyConfigured for no topic, a function whose work would not run, or a second one of the same name.

    Example::

        @subscribe("order.fulfilled")
        def thank_the_customer(event): ...
    """
    if not topics or not all(isinstance(topic, str) and topic for topic in topics):
        raise ImproperlyConfigured(
            f'django_logic.outbox.subscribe takes topics; found {topics!r}. Write @subscribe("order.fulfilled").'
        )

    def register(function: FunctionT) -> FunctionT:
        name = name_of(function)
        if never_runs(function):
            raise ImproperlyConfigured(
                f"{name}: a subscriber is a plain function; calling this one only makes a coroutine or a generator."
                " For async code use async_to_sync."
            )
        known = _subscribers.get(name)
        if known is not None and not is_same(known.function, function):
            raise ImproperlyConfigured(
                f"{name}: another function of this name is subscribed already, and only one of them would be told."
                " Give this one another name, or forget() the first."
            )
        stacked = known.topics if known is not None and known.function is function else ()
        _subscribers[name] = Subscriber(name, (*stacked, *topics), function)
        return function

    return register


def name_of(function: Callable[..., Any]) -> str:
    """
    Return how rows name a subscriber: by its function, or the class of an object that can be called.
    """
    while isinstance(function, partial):
        function = function.func
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def is_same(known: Callable[..., Any], function: Callable[..., Any]) -> bool:
    """
    Tell whether a function is one that is known, or that one made anew, as when its module is loaded again.
    """
    codes: list[Any] = [getattr(inspect.unwrap(one), "__code__", None) for one in (known, function)]
    if known is function or None in codes or inspect.ismethod(function):
        return known is function
    places = {(code.co_filename, code.co_firstlineno) for code in codes}
    return len(places) == 1


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
