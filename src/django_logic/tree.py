"""
A process class with everything nested in it, compiled once: who answers to a name, a target, a state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

from django_logic.exceptions import Text
from django_logic.transitions import Hook, Transition

__all__ = ["Candidate", "ProcessClass", "Tree", "compile_tree", "dotted", "tree_of", "walk"]


class ProcessClass(Protocol):
    """
    Describe what the engine reads of a process class.
    """

    process_name: str
    transitions: Any
    nested_processes: Any
    conditions: Any
    permissions: Any
    lock: str | None
    duplicates: str
    refresh: bool
    refusal_messages: Mapping[str, Text]
    record_initial_state: bool
    durable_callbacks: bool


@dataclass(frozen=True)
class Candidate:
    """
    Hold one declaration in its place in the tree, with the guards of every process above it.
    """

    transition: Transition
    path: tuple[type[ProcessClass], ...]
    sources: frozenset[Any]
    permissions: tuple[Hook, ...]
    conditions: tuple[Hook, ...]

    @property
    def owner(self) -> type[ProcessClass]:
        """
        Return the process class that declares it.
        """
        return self.path[-1]

    @cached_property
    def name(self) -> str:
        """
        Return the dotted name messages use.
        """
        return f"{self.owner.__name__}.{self.transition.action_name}"

    @property
    def dotted(self) -> str:
        """
        Return the import path of its place, for messages about the declaration.
        """
        return f"{dotted(self.owner)}.{self.transition.action_name}"

    @cached_property
    def has_work(self) -> bool:
        """
        Tell whether guards or hooks have to run while the row is held.
        """
        return bool(self.permissions or self.conditions or self.transition.runs_under_lock)

    @cached_property
    def lock(self) -> str | None:
        """
        Return the lock it declares: its own, else that of the nearest process above it.
        """
        declared = (self.transition.lock, *(process.lock for process in reversed(self.path)))
        return next((kind for kind in declared if kind is not None), None)

    @cached_property
    def edges(self) -> frozenset[tuple[Any, Any]]:
        """
        Return every move of the column it may write.
        """
        transition = self.transition
        ends = [] if transition.is_action else [transition.target]
        busy = transition.in_progress_state
        moves = {(source, busy if busy is not None else end) for source in self.sources for end in ends or [source]}
        if busy is not None:
            moves |= {(busy, end) for end in ends}
        if transition.failed_state is not None:
            starts = {busy} if busy is not None else self.sources
            moves |= {(start, transition.failed_state) for start in starts}
        return frozenset((start, end) for start, end in moves if start != end)


@dataclass(frozen=True)
class Tree:
    """
    Answer what a process class can do, all nested processes included.
    """

    root: type[ProcessClass]
    candidates: tuple[Candidate, ...]
    states: frozenset[Any]
    by_action: Mapping[str, tuple[Candidate, ...]]
    by_target: Mapping[Any, tuple[Candidate, ...]]

    @cached_property
    def has_background(self) -> bool:
        """
        Tell whether a row of background work can stand in the way.
        """
        return any(candidate.transition.is_background for candidate in self.candidates)

    @cached_property
    def edges(self) -> frozenset[tuple[Any, Any]]:
        """
        Return every move of the column the process may write; staying put is none.
        """
        return frozenset().union(*(candidate.edges for candidate in self.candidates))


def dotted(process_class: type[Any]) -> str:
    """
    Return the import path messages name a process by.
    """
    return f"{process_class.__module__}.{process_class.__qualname__}"


def walk(
    process_class: type[ProcessClass], path: tuple[type[ProcessClass], ...] = (), seen: set[type[Any]] | None = None
) -> Iterator[tuple[type[ProcessClass], ...]]:
    """
    Yield the path to each process class, root first, depth first, each class once: diamonds and cycles end.
    """
    seen = set() if seen is None else seen
    if process_class in seen:
        return
    seen.add(process_class)
    here = (*path, process_class)
    yield here
    for nested in process_class.nested_processes:
        yield from walk(nested, here, seen)


@cache
def compiled(process_class: Any) -> Tree:
    """
    Remember the tree of a process class from its first use on.
    """
    return compile_tree(process_class)


def tree_of(process_class: Any) -> Tree:
    """
    Return what a process class declares, compiled once.
    """
    return compiled(process_class)


def compile_tree(process_class: Any) -> Tree:
    """
    Compile a process class as it is now.
    """
    placed = [(path, transition) for path in walk(process_class) for transition in path[-1].transitions]
    states = frozenset().union(*(declared_states(transition) for _path, transition in placed))
    candidates = tuple(place(path, transition, states) for path, transition in placed)
    by_action: dict[str, list[Candidate]] = {}
    by_target: dict[Any, list[Candidate]] = {}
    for candidate in candidates:
        by_action.setdefault(candidate.transition.action_name, []).append(candidate)
        if not candidate.transition.is_action:
            by_target.setdefault(candidate.transition.target, []).append(candidate)
    return Tree(
        root=process_class,
        candidates=candidates,
        states=states,
        by_action={name: tuple(found) for name, found in by_action.items()},
        by_target={state: tuple(found) for state, found in by_target.items()},
    )


def declared_states(transition: Transition) -> frozenset[Any]:
    """
    Return every state a declaration names.
    """
    named = {*transition.sources}
    if not transition.is_action:
        named.add(transition.target)
    optional = (transition.failed_state, transition.in_progress_state)
    return frozenset(named | {state for state in optional if state is not None})


def place(path: tuple[type[ProcessClass], ...], transition: Transition, states: frozenset[Any]) -> Candidate:
    """
    Put a declaration in its place: ``"*"`` becomes states, guards of the path come before its own.
    """
    sources = frozenset(transition.sources)
    if transition.any_source:
        sources = states if transition.is_action else states - {transition.target}
    if transition.in_progress_state is not None:
        sources |= {transition.in_progress_state}
    return Candidate(
        transition=transition,
        path=path,
        sources=sources,
        permissions=(*(hook for process in path for hook in process.permissions), *transition.permissions),
        conditions=(*(hook for process in path for hook in process.conditions), *transition.conditions),
    )
