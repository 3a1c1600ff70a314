"""
Which queues the bound processes use, and with which priorities.
"""

from __future__ import annotations

from django_logic.background.lanes import Lane
from django_logic.background.transitions import BackgroundDeclaration
from django_logic.binding import ProcessManager
from django_logic.tree import tree_of

__all__ = ["declared_lanes", "queues_in_use"]


def declared_lanes() -> dict[Lane, list[str]]:
    """
    Return the lanes of every bound background declaration, with the declarations that use each.
    """
    found: dict[Lane, list[str]] = {}
    for process_class in dict.fromkeys(binding.process_class for binding in ProcessManager.bindings):
        for candidate in tree_of(process_class).candidates:
            transition = candidate.transition
            if isinstance(transition, BackgroundDeclaration):
                found.setdefault(Lane(transition.queue_name, transition.priority), []).append(candidate.dotted)
    return found


def queues_in_use() -> dict[str, list[str]]:
    """
    Return the queues that bound declarations use, with those declarations.
    """
    found: dict[str, list[str]] = {}
    for lane, places in declared_lanes().items():
        found.setdefault(lane.queue, []).extend(places)
    return {queue: sorted(set(places)) for queue, places in sorted(found.items())}
