"""
Which actions the tests of a process have driven, and which of its edges nobody has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django_logic import Process, signals
from django_logic.tree import tree_of

__all__ = ["DrivenTransitions", "record_driven_transitions"]


@dataclass(slots=True)
class DrivenTransitions:
    """
    Hold the names of the actions that were driven.
    """

    action_names: set[str] = field(default_factory=set)
    #: The same with the process that was bound.
    roots: set[tuple[Any, str]] = field(default_factory=set)

    def undriven(self, process_class: type[Process]) -> list[str]:
        """
        List the actions of a process, nested ones included, that nobody has driven; sorted.
        """
        driven = {name for root, name in self.roots if root is process_class}
        return sorted(set(tree_of(process_class).by_action) - driven)


@contextmanager
def record_driven_transitions() -> Iterator[DrivenTransitions]:
    """
    Record what is driven within the block: a call whose work began, whether or not it failed; a refusal is no drive.
    """
    record = DrivenTransitions()

    def note(call: Any, moved: bool = True, move: Any = None, **_facts: Any) -> None:
        action = call.action or (move.action if move is not None else None)
        if moved and action is not None:
            record.action_names.add(action)
            record.roots.add((call.tree.root, action))

    announced = (signals.transition_finished, signals.transition_failed, signals.transition_accepted)
    for signal in announced:
        signal.connect(note, weak=False)
    try:
        yield record
    finally:
        for signal in announced:
            signal.disconnect(note)
