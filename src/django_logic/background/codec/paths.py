"""
How messages name a place inside a structure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["UNPLACED", "where"]

#: The step to an element of a set, which has no place.
UNPLACED = Ellipsis
LONGEST_STEP = 100


def where(path: Sequence[Any]) -> str:
    """
    Write a path the way Python reaches there: ``lines[2]['price']``, and ``tags[…]`` for an element of a set.
    """
    name, *steps = path
    start = name if isinstance(name, str) and name.isidentifier() else spoken(name)
    return "".join([start, *(f"[{spoken(step)}]" for step in steps)])


def spoken(step: Any) -> str:
    """
    Write a step without running code of its class, which may read the database.
    """
    if step is UNPLACED:
        return "…"
    is_plain = type(step) is str or (type(step) is int and step.bit_length() < 64)
    return repr(step)[:LONGEST_STEP] if is_plain else f"<{type(step).__name__}>"
