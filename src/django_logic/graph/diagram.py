"""
What a process looks like: its states, their marks, and the arrows between them.

A diagram is plain data, in the order of the declarations. The modules beside this one turn it into text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Arrow", "Diagram", "Kind", "Move", "State", "joined", "printable", "shown"]

#: Control characters and half surrogate pairs: no format can hold them.
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")


class Kind(StrEnum):
    """
    Say what an arrow stands for.
    """

    MOVE = "move"
    START = "start"
    FAILURE = "failure"
    ACTION = "action"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """
    Hold one state: ``key`` names it in the text, ``text`` is what people read.
    """

    key: str
    value: Any
    text: str
    is_initial: bool
    is_terminal: bool
    is_current: bool
    is_busy: bool
    is_failed: bool
    is_declared: bool

    @property
    def marks(self) -> list[str]:
        """
        Return what is special about it, in words.
        """
        told = {
            "current": self.is_current,
            "initial": self.is_initial,
            "terminal": self.is_terminal,
            "in progress": self.is_busy,
            "failed": self.is_failed,
            "undeclared": not self.is_declared,
        }
        return [word for word, is_so in told.items() if is_so]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """
    Hold one declaration as a row of a table.
    """

    action: str
    label: str
    sources: tuple[Any, ...]
    target: Any
    is_action: bool
    is_background: bool
    in_progress_state: Any
    failed_state: Any
    guards: tuple[str, ...]
    declared_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """
    Hold what leads from one state to another in one way; ``labels`` are the actions, in the words of people.
    """

    source: State
    target: State
    kind: Kind
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagram:
    """
    Hold all that is drawn of one process on one field.
    """

    title: str
    model: str | None
    field: str | None
    process: str
    process_name: str
    states: tuple[State, ...]
    arrows: tuple[Arrow, ...]
    moves: tuple[Move, ...]


def shown(state: Any) -> str:
    """
    Return a state the way it can be read: quotes make the empty text, and space around one, visible.
    """
    needs_quotes = state is None or (isinstance(state, str) and state.strip() != (state or None))
    return printable(repr(state) if needs_quotes else str(state))


def joined(states: Iterable[Any]) -> str:
    """
    Return states in one line.
    """
    return ", ".join(shown(state) for state in states)


def printable(text: str) -> str:
    """
    Return text in one line, without what no format can hold.
    """
    return UNPRINTABLE.sub("\ufffd", " ".join(text.split()))
