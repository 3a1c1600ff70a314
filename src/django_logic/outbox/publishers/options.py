"""
Judge the options of publishers when they are made, so that a wrong one is told before the first event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from string import Formatter
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_logic.numbers import duration
from django_logic.outbox.event import Event

__all__ = ["name_for", "pattern", "pieces", "refusal", "seconds", "text"]

#: What a name at the broker may be made from.
FIELDS = frozenset({"topic", "aggregate"})


def refusal(publisher: str, option: str, found: object, needed: str) -> ImproperlyConfigured:
    """
    Return the refusal of one option, for the caller to raise.
    """
    return ImproperlyConfigured(
        f'DJANGO_LOGIC["OUTBOX_PUBLISHERS"]: the option {option!r} of {publisher} is {found!r}; it must be {needed}.'
    )


def text(publisher: str, option: str, value: object) -> str:
    """
    Return a text that is not empty.
    """
    if not isinstance(value, str) or not value:
        raise refusal(publisher, option, value, "a text that is not empty")
    return value


def seconds(publisher: str, option: str, value: Any) -> float:
    """
    Return a span of time in seconds.
    """
    if duration(above=0)(value):
        raise refusal(publisher, option, value, "a number of seconds above 0")
    return float(value)


def pattern(publisher: str, option: str, value: object) -> str:
    """
    Return a pattern for `name_for`.
    """
    needed = "a text whose only fields are {topic} and {aggregate}"
    found = text(publisher, option, value)
    try:
        fields = {field for _, field, _, _ in Formatter().parse(found) if field is not None}
        found.format(**dict.fromkeys(FIELDS, ""))
    except (LookupError, ValueError, AttributeError) as error:
        raise refusal(publisher, option, value, needed) from error
    if not fields <= FIELDS:
        raise refusal(publisher, option, value, needed)
    return found


def name_for(pattern: str, event: Event) -> str:
    """
    Return where an event goes, by a pattern that was judged before.
    """
    return pattern.format(topic=event.topic, aggregate=event.aggregate)


def pieces(publisher: str, option: str, value: object, kept: Iterable[str]) -> dict[str, Any]:
    """
    Return settings that are passed on to a library, without those a publisher must keep as they are.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise refusal(publisher, option, value, "a mapping of names to values")
    taken = sorted(set(kept) & set(value))
    if taken:
        raise refusal(publisher, option, taken, "without these names: the publisher sets them itself")
    return dict(value)
