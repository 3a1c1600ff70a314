"""
Where events go: the destinations of the settings, and which topics each wants.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from django_logic.outbox import options
from django_logic.outbox.publishers import Publisher
from django_logic.states import nearest

__all__ = ["make_publisher", "names", "names_for", "names_of_subscribers"]


def names() -> list[str]:
    """
    Return every destination.
    """
    return list(options.publishers())


def names_for(topic: str) -> list[str]:
    """
    Return the destinations that want a topic; without ``TOPICS`` one wants all.
    """
    return [
        name
        for name, entry in options.publishers().items()
        if not entry.get("TOPICS") or any(fnmatchcase(topic, pattern) for pattern in entry["TOPICS"])
    ]


def names_of_subscribers() -> list[str]:
    """
    Return the destinations that are functions in Python.
    """
    return [name for name, entry in options.publishers().items() if entry["BACKEND"] == options.SUBSCRIBERS]


def make_publisher(name: str) -> Publisher:
    """
    Make the publisher of a destination from its settings.

    Raises: ImproperlyConfigured for a name nobody knows, a class that can't be loaded or options it does not take.
    """
    known = options.publishers()
    where = f"settings.DJANGO_LOGIC['OUTBOX_PUBLISHERS'][{name!r}]"
    if name not in known:
        raise ImproperlyConfigured(f"{where}: there is no such destination.{nearest(name, known)}")
    try:
        backend: Any = import_string(known[name]["BACKEND"])
    except ImportError as error:
        raise ImproperlyConfigured(
            f"{where}['BACKEND']: {known[name]['BACKEND']} can't be loaded ({error}). Correct the path, or install the"
            " extra of django-logic that brings its library."
        ) from error
    try:
        made: Publisher = backend(**known[name].get("OPTIONS", {}))
    except TypeError as error:
        raise ImproperlyConfigured(f"{where}['OPTIONS']: {error}.") from error
    return made
