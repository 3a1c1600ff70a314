"""
Reading a process into a diagram: which states and arrows there are, and in which order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import models

from django_logic.binding import ModelProcessBinding
from django_logic.graph.diagram import Arrow, Diagram, Kind, Move, State, printable, shown
from django_logic.hooks import name_of
from django_logic.process import Process
from django_logic.states import nearest, plain
from django_logic.transitions import Transition
from django_logic.tree import Candidate, Tree, dotted, tree_of

__all__ = ["UNSET", "Source", "read"]

Source = type[Process] | Process | ModelProcessBinding


class Unset:
    """
    Stand for "no state given", since None is a state of its own.
    """

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """
    Hold what is known of the field beside the process.
    """

    process_class: type[Process]
    model: type[models.Model] | None = None
    field: Any = None
    state: Any = UNSET


def read(
    source: Source, *, state: Any = UNSET, exclude: Iterable[str] = (), only: Iterable[str] | None = None
) -> Diagram:
    """
    Make the diagram of a process class, a binding or an object's process.

    ``state`` is marked as the current one, an object's own by default; ``exclude`` and ``only`` choose actions.
    Raises: TypeError for anything else, ValueError for an action that is not declared.
    """
    subject = subject_of(source)
    tree = tree_of(subject.process_class)
    current = subject.state if state is UNSET else plain(state)
    order = ordered_states(tree, initial_of(subject.field))
    wanted = chosen(tree, exclude, only)
    candidates = [candidate for candidate in tree.candidates if wanted(candidate.transition.action_name)]
    states = {entry.value: entry for entry in described(subject, tree, order, current, candidates)}
    model, field = subject.model, subject.field
    name = subject.process_class.__name__
    return Diagram(
        title=f"{model._meta.label}.{field.name}: {name}" if model is not None else name,
        model=model._meta.label if model is not None else None,
        field=field.name if field is not None else None,
        process=dotted(subject.process_class),
        process_name=subject.process_class.process_name,
        states=tuple(states.values()),
        arrows=tuple(arrows_between(states, candidates, order)),
        moves=tuple(move_of(candidate, order) for candidate in candidates),
    )


def subject_of(source: Any) -> Subject:
    """
    Find out what a caller wants to see.
    """
    if isinstance(source, ModelProcessBinding):
        field = source.model._meta.get_field(source.state_field)
        return Subject(process_class=source.process_class, model=source.model, field=field)
    if isinstance(source, Process):
        column = source.column
        return Subject(process_class=type(source), model=column.model, field=column.field, state=source.state)
    if isinstance(source, type) and issubclass(source, Process):
        return Subject(process_class=source)
    raise TypeError(f"A graph is made of a Process class, a binding or an object's process; found {source!r}.")


def chosen(tree: Tree, exclude: Iterable[str], only: Iterable[str] | None) -> Callable[[str], bool]:
    """
    Return the filter of action names; a lone name counts as a list of one.

    Raises: ValueError when a name is not declared.
    """
    without = {exclude} if isinstance(exclude, str) else set(exclude)
    within = {only} if isinstance(only, str) else set(tree.by_action if only is None else only)
    for name in sorted(without | within):
        if name not in tree.by_action:
            raise ValueError(f"{tree.root.__name__} has no action {name!r}.{nearest(name, tree.by_action)}")
    return lambda name: name in within and name not in without


def initial_of(field: Any) -> Any:
    """
    Return the state an object is born in, UNSET where the field does not say.
    """
    if field is None:
        return UNSET
    if field.has_default():
        return plain(field.get_default())
    in_database = getattr(field, "db_default", None)
    value = getattr(in_database, "value", in_database)
    return plain(value) if isinstance(plain(value), (str, int)) else UNSET


def ordered_states(tree: Tree, initial: Any) -> dict[Any, int]:
    """
    Return the place of each declared state: the initial one first, then as they are written down.
    """
    found = [] if initial is UNSET else [initial]
    for candidate in tree.candidates:
        transition = candidate.transition
        ends = [] if transition.is_action else [transition.target]
        busy_and_failed = (transition.in_progress_state, transition.failed_state)
        found += [*transition.sources, *ends, *(state for state in busy_and_failed if state is not None)]
    return {state: place for place, state in enumerate(dict.fromkeys(found))}


def described(
    subject: Subject, tree: Tree, order: dict[Any, int], current: Any, candidates: list[Candidate]
) -> Iterator[State]:
    """
    Yield each state that is drawn: those of the chosen actions, the initial one and the current one.

    What a state is follows from the whole process, whichever actions are chosen.
    """
    initial = initial_of(subject.field)
    left = {start for start, _end in tree.edges}
    failed = {candidate.transition.failed_state for candidate in tree.candidates} - {None}
    busy = {candidate.transition.in_progress_state for candidate in tree.candidates} - {None}
    named = {end for candidate in candidates for _kind, *ends in edges_of(candidate) for end in ends}
    words = dict(getattr(subject.field, "flatchoices", ()))
    places = order if current is UNSET or current in order else {**order, current: len(order)}
    for state, place in places.items():
        if state not in named and state not in (initial, current):
            continue
        yield State(
            key=f"s{place}",
            value=state,
            text=worded(state, words),
            is_initial=initial is not UNSET and state == initial,
            is_terminal=state in tree.states and state not in left,
            is_current=current is not UNSET and state == current,
            is_busy=state in busy,
            is_failed=state in failed,
            is_declared=state in tree.states,
        )


def worded(state: Any, words: dict[Any, Any]) -> str:
    """
    Return a state with the label of its choice, unless that says the same again.
    """
    label = printable(str(words.get(state, "")))
    says_the_same = label.casefold().replace(" ", "_") == shown(state).casefold().replace(" ", "_")
    return shown(state) if not label or says_the_same else f"{shown(state)} ({label})"


def edges_of(candidate: Candidate) -> Iterator[tuple[Kind, Any, Any]]:
    """
    Yield the arrows of one declaration.
    """
    transition = candidate.transition
    busy = transition.in_progress_state
    for source in candidate.sources - {busy} if busy is not None else candidate.sources:
        if busy is not None:
            yield Kind.START, source, busy
        elif transition.is_action:
            yield Kind.ACTION, source, source
        else:
            yield Kind.MOVE, source, transition.target
        if busy is None and transition.failed_state not in (None, source):
            yield Kind.FAILURE, source, transition.failed_state
    if busy is not None:
        yield Kind.MOVE, busy, transition.target
    if busy is not None and transition.failed_state is not None:
        yield Kind.FAILURE, busy, transition.failed_state


def arrows_between(states: dict[Any, State], candidates: list[Candidate], order: dict[Any, int]) -> Iterator[Arrow]:
    """
    Yield the arrows in a stable order; what leads the same way between the same states shares one.
    """
    merged: dict[tuple[Any, Any, Kind], list[str]] = {}
    for candidate in candidates:
        label = label_of(candidate.transition)
        for kind, source, target in edges_of(candidate):
            labels = merged.setdefault((source, target, kind), [])
            if label not in labels:
                labels.append(label)
    kinds = list(Kind)
    for source, target, kind in sorted(merged, key=lambda key: (order[key[0]], kinds.index(key[2]), order[key[1]])):
        labels = merged[source, target, kind]
        yield Arrow(source=states[source], target=states[target], kind=kind, labels=tuple(labels))


def label_of(transition: Transition) -> str:
    """
    Return what people call an action, in the active language.
    """
    return printable(str(transition.label or "")) or printable(transition.action_name)


def move_of(candidate: Candidate, order: dict[Any, int]) -> Move:
    """
    Describe one declaration.
    """
    transition = candidate.transition
    return Move(
        action=transition.action_name,
        label=label_of(transition),
        sources=tuple(sorted(candidate.sources - {transition.in_progress_state}, key=order.__getitem__)),
        target=transition.target,
        is_action=transition.is_action,
        is_background=transition.is_background,
        in_progress_state=transition.in_progress_state,
        failed_state=transition.failed_state,
        guards=tuple(name_of(hook) for hook in (*candidate.permissions, *candidate.conditions)),
        declared_by=candidate.owner.__name__,
    )
