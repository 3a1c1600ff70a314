"""
What a state is: the plain value stored in the column, whatever enum it was written with.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import Enum
from typing import Any

__all__ = ["State", "as_text", "nearest", "plain", "plain_all", "plain_table"]

State = str | int | None

#: A transition table as written: source -> targets, members or plain values.
Table = Any


def plain(state: Any) -> Any:
    """
    Return the value a member of an enum stands for, anything else as it is.
    """
    return state.value if isinstance(state, Enum) else state


def plain_all(states: Iterable[Any]) -> tuple[Any, ...]:
    """
    Return plain values in their order, each once.
    """
    return tuple(dict.fromkeys(plain(state) for state in states))


def plain_table(table: Any) -> dict[Any, tuple[Any, ...]]:
    """
    Return a transition table with plain values on both sides.

    Raises: TypeError when it is not a mapping, or a row's targets are text.
    """
    if not hasattr(table, "items"):
        raise TypeError(f"a transition table maps each source to its targets; found {type(table).__name__}")
    rows: dict[Any, tuple[Any, ...]] = {}
    # Sets of text come in another order in each process; the table's own order makes diagrams and migrations stable.
    order = {plain(source): place for place, source in enumerate(table)}
    for source, targets in table.items():
        if isinstance(targets, (str, bytes)) or not isinstance(targets, Iterable):
            raise TypeError(f"the targets of {plain(source)!r} must be a set or list of states; found {targets!r}")
        listed = plain_all(targets)
        rows[plain(source)] = tuple(sorted(listed, key=lambda state: (order.get(state, len(order)), str(state))))
    return rows


def as_text(state: Any) -> str | None:
    """
    Return a state the way history stores it: text, or None for a null column.
    """
    value = plain(state)
    return None if value is None else str(value)


def nearest(word: Any, known: Iterable[Any]) -> str:
    """
    Say which known words are close to this one, as the tail of a sentence; empty when none is.
    """
    matches = get_close_matches(str(word), [str(entry) for entry in known], n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(match) for match in matches)}?" if matches else ""
