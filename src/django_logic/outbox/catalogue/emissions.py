"""
What one declaration emits, and on the way from which states: its success, its busy state, its failed state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django_logic.outbox.events import Told, topic_of
from django_logic.subject import Column
from django_logic.tree import Candidate

__all__ = ["Emission", "Kind", "emissions_of"]


class Kind(StrEnum):
    """
    Name what of a declaration an event tells.
    """

    MOVE = "move"
    BUSY = "busy"
    FAILED = "failed"
    ACTION = "action"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """
    Hold one event of one declaration: the states it may come from, and the state it tells; None for an action.
    """

    kind: Kind
    told: Told
    starts: frozenset[Any]
    end: Any


def emissions_of(column: Column, candidate: Candidate) -> Iterator[Emission]:
    """
    Yield what a declaration emits, by the words of the function that moves ask.
    """
    for kind, starts, end in writes_of(candidate):
        event = candidate.transition.event if kind in (Kind.MOVE, Kind.ACTION) else None
        told = topic_of(column, event, candidate.transition.action_name if kind is Kind.ACTION else end)
        if told is not None and starts:
            yield Emission(kind=kind, told=told, starts=starts, end=end)


def writes_of(candidate: Candidate) -> Iterator[tuple[Kind, frozenset[Any], Any]]:
    """
    Yield what a declaration writes, each with the states in which it may be written.

    Work that was taken over starts in the busy state where there is one, and is not written as failed twice.
    """
    transition = candidate.transition
    busy, failed = transition.in_progress_state, transition.failed_state
    working = candidate.sources if busy is None else frozenset({busy})
    if busy is not None:
        yield Kind.BUSY, candidate.sources - {busy}, busy
    if not transition.is_action:
        yield Kind.MOVE, working, transition.target
    elif transition.event:
        yield Kind.ACTION, working, None
    if failed is not None:
        yield Kind.FAILED, working - {failed} if transition.is_background else working, failed
