"""
What both directions of the codec must agree on: the words of the stored form.
"""

from __future__ import annotations

import logging
import pkgutil
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

__all__ = ["COLLECTIONS", "SCALARS", "TAG", "find_class", "is_object", "logger", "path_of"]

logger = logging.getLogger("django-logic.transition")

#: The key that marks an object as something JSON has no word for.
TAG = "$type"

#: Types that are one text or one list of numbers: the name, how to write one and how to read it.
SCALARS: Mapping[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    UUID: ("uuid", str, UUID),
    Decimal: ("decimal", str, Decimal),
    date: ("date", date.isoformat, date.fromisoformat),
    timedelta: (
        "timedelta",
        lambda span: [span.days, span.seconds, span.microseconds],
        lambda parts: timedelta(*parts),
    ),
    bytes: ("bytes", lambda data: b64encode(data).decode(), lambda text: b64decode(text, validate=True)),
}

#: Containers that are one list: the type and its name.
COLLECTIONS: Mapping[type, str] = {tuple: "tuple", set: "set", frozenset: "frozenset"}


@lru_cache(maxsize=1024)
def path_of(kind: type) -> str | None:
    """
    Return the path by which every process can import a class, or None: it is local, or belongs to the program started.
    """
    path = f"{kind.__module__}:{kind.__qualname__}"
    return path if kind.__module__ != "__main__" and find_class(path) is kind else None


def find_class(path: str) -> type | None:
    """
    Import a class by its path, None when it is gone.
    """
    try:
        found = pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError):
        return None
    return found if isinstance(found, type) else None


def is_object(value: dict[Any, Any]) -> bool:
    """
    Tell whether JSON columns keep a dict as it is: ASCII keys in the order of jsonb, and no mark of ours.
    """
    before = (-1, "")
    for key in value:
        if type(key) is not str or key == TAG or not key.isascii() or "\x00" in key:
            return False
        rank = (len(key), key)
        if rank < before:
            return False
        before = rank
    return True
