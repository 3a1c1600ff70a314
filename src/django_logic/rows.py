"""
Rows that are written together with a move: inserted, or changed if they still are as expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import models

__all__ = ["OBJECT_KEY", "SEQUENCE", "TRANSITION_ID", "Change", "Row", "Unless", "places_of_sequence", "settled"]


class PendingSequence:
    """
    Stand for the sequence the history row of the same move gets.
    """

    def __repr__(self) -> str:
        return "SEQUENCE"

    def __str__(self) -> str:
        raise TypeError(
            "The sequence of a move is known only as the move is written, so it can't be a part of a text. Let it be a"
            " value of its own, at the top of the payload."
        )


#: Put this where a contributed row needs the move's sequence, which is known only as it is written; also as a value of
#: a mapping that a JSON column takes.
SEQUENCE: Final = PendingSequence()


class PerObject:
    """
    Stand for what differs from object to object when many move at once.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


#: The object's key, and the id of its own move.
OBJECT_KEY: Final = PerObject("OBJECT_KEY")
TRANSITION_ID: Final = PerObject("TRANSITION_ID")


#: What most values are, and holds nothing: asking an abstract class about each costs a big set a tenth of its time.
PLAIN = frozenset({str, int, bool, UUID, datetime, type(None)})


def places_of_sequence(value: Any) -> tuple[str, ...]:
    """
    Return under which names a JSON object wants the move's sequence.
    """
    if type(value) in PLAIN:
        return ()
    return tuple(name for name, inner in value.items() if inner is SEQUENCE) if isinstance(value, Mapping) else ()


def settled(value: Any, sequence: int | None) -> Any:
    """
    Return a value with the move's sequence where it was pending.
    """
    if value is SEQUENCE:
        return sequence
    names = places_of_sequence(value)
    return {**value, **dict.fromkeys(names, sequence)} if names else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """
    Hold one row to insert with a move: a model and the values of its columns by attribute name.

    A column that is left out gets the default of its field. The row does not pass through ``save()``.
    """

    model: type[models.Model]
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unless:
    """
    Name a kind of row whose existence, with the changed row's key in ``attribute``, forbids the change.
    """

    model: type[models.Model]
    attribute: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """
    Hold the change of one row that has to agree with a move: what it must still say, and what it says then.

    Both map attribute names to values; a `django_logic.clock.FromNow` stands for a time of the database.
    """

    model: type[models.Model]
    pk: Any
    expected: Mapping[str, Any]
    values: Mapping[str, Any]
    unless: Unless | None = None
