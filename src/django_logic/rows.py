"""
Rows that are written together with a move: inserted, or changed if they still are as expected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from django.db import models

__all__ = ["OBJECT_KEY", "SEQUENCE", "TRANSITION_ID", "Change", "Document", "Row", "Unless", "settled"]


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


class Document(dict[str, Any]):
    """
    Hold a JSON object as text, too: what is known of it, beside the names under which the sequence is pending.

    Raises: TypeError, ValueError or RecursionError for what is no JSON.
    """

    __slots__ = ("pending", "text")

    def __init__(self, value: Mapping[str, Any], encoder: Any = None) -> None:
        super().__init__(value)
        self.pending = tuple(name for name, inner in self.items() if inner is SEQUENCE)
        known = {name: inner for name, inner in self.items() if inner is not SEQUENCE} if self.pending else self
        self.text = writer_of_json(encoder).encode(known)


@cache
def writer_of_json(encoder: Any) -> json.JSONEncoder:
    """
    Return what writes JSON as databases store it.
    """
    made: json.JSONEncoder = (encoder or json.JSONEncoder)(allow_nan=False, ensure_ascii=False)
    return made


def settled(value: Any, sequence: int | None) -> Any:
    """
    Return a value with the move's sequence where it was pending.
    """
    if value is SEQUENCE:
        return sequence
    if not isinstance(value, dict) or SEQUENCE not in value.values():
        return value
    return {name: sequence if inner is SEQUENCE else inner for name, inner in value.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """
    Hold one row to insert with a move: a model and the values of its columns by attribute name.

    A column that is left out gets the default of its field. The row does not pass through ``save()``. ``alike`` are
    columns in which rows of one kind say the same, as pairs that can be hashed: each set of them is a statement of its
    own, in which they stand written out, so let there be few.
    """

    model: type[models.Model]
    values: Mapping[str, Any]
    alike: tuple[tuple[str, Any], ...] = ()

    @property
    def everything(self) -> dict[str, Any]:
        """
        Return the values of all columns that are given.
        """
        return {**dict(self.alike), **self.values}


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
