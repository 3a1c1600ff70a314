"""
Transition tables in the one form that compares, sorts and travels into migrations.

Members of enums become plain values, order is ours, and a mistake in a declaration is named here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from django.core.exceptions import ImproperlyConfigured

from django_logic.states import nearest, plain

__all__ = ["Rows", "State", "in_order", "named", "refuse_mixture", "rows_of", "some_of", "states_of"]

State: TypeAlias = str | int | None
#: Every state with its targets, both in order; a state without targets is listed too.
Rows: TypeAlias = dict[State, tuple[State, ...]]


def named(owner: str, keyword: str, value: Any) -> str:
    """
    Return a name given to a constraint.

    Raises: ImproperlyConfigured for anything but a text that says something.
    """
    if isinstance(value, str) and value:
        return value
    raise ImproperlyConfigured(f"{owner}: {keyword} must be a name; found {value!r}.")


def in_order(states: Iterable[State]) -> tuple[State, ...]:
    """
    Return the distinct states in their canonical order, the missing state first.
    """
    return tuple(sorted(dict.fromkeys(states), key=lambda state: (state is not None, state)))


def rows_of(owner: str, table: Any) -> Rows:
    """
    Return a table of states and targets in canonical form; `owner` names the declaration in messages.

    Raises: ImproperlyConfigured for anything that is no table of states.
    """
    targets: dict[State, tuple[State, ...]] = {}
    for source, ends in pairs_of(owner, table):
        state = state_of(owner, source)
        if state in targets:
            raise ImproperlyConfigured(f"{owner}: the state {state!r} has two rows in the table. Join them.")
        targets[state] = states_of(owner, ends, source)
    known = [*targets, *(state for ends in targets.values() for state in ends)]
    refuse_mixture(owner, known)
    if not known:
        raise ImproperlyConfigured(f"{owner}: the table is empty. List each state with the states it may move to.")
    return {state: in_order(targets.get(state, ())) for state in in_order(known)}


def pairs_of(owner: str, table: Any) -> list[tuple[Any, Any]]:
    """
    Return the rows of a mapping, or of pairs, which is how migrations write a table with a missing state.
    """
    entries = table.items() if isinstance(table, Mapping) else table
    if isinstance(entries, Iterable) and not isinstance(entries, str | bytes):
        rows = [tuple(entry) if isinstance(entry, list | tuple) else (entry,) for entry in entries]
        if all(len(row) == 2 for row in rows):
            return [(source, ends) for source, ends in rows]
    raise ImproperlyConfigured(f"{owner}: the table maps each state to the states it may move to; found {table!r}.")


def states_of(owner: str, states: Any, source: Any = None) -> tuple[State, ...]:
    """
    Return the states of a collection, an enum class included.

    Raises: ImproperlyConfigured for one bare state, whose letters would be taken for states.
    """
    if isinstance(states, str | bytes) or not isinstance(states, Iterable):
        where = "states" if source is None else f"the targets of {plain(source)!r}"
        raise ImproperlyConfigured(f"{owner}: {where} must be a set or list of states; found {states!r}.")
    return tuple(state_of(owner, state) for state in states)


def some_of(owner: str, states: Any, known: Iterable[State]) -> frozenset[State]:
    """
    Return one state, or several, as a set of states that the table knows.
    """
    several = isinstance(states, Iterable) and not isinstance(states, str | bytes)
    chosen = frozenset(states_of(owner, states if several else [states]))
    if not chosen:
        raise ImproperlyConfigured(
            f"{owner}: initial is empty, so no row could be created. Name a state, or leave it out."
        )
    known = tuple(known)
    refuse_mixture(owner, chosen)
    for state in in_order(chosen):
        if state not in known:
            raise ImproperlyConfigured(
                f"{owner}: the initial state {state!r} is not in the table; it knows {known!r}.{nearest(state, known)}"
            )
    return chosen


def state_of(owner: str, state: Any) -> State:
    """
    Return the plain value of one state.

    Raises: ImproperlyConfigured for a value no column of text or whole numbers holds.
    """
    value = plain(state)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if not isinstance(value, str):
        raise ImproperlyConfigured(
            f"{owner}: a state is text, a whole number or None; found {value!r} ({type(value).__name__})."
        )
    if "\0" in value or (not value.isprintable() and not is_encodable(value)):
        raise ImproperlyConfigured(f"{owner}: no database stores the text {value!r}. Choose another state.")
    return str(value)


def is_encodable(text: str) -> bool:
    """
    Tell whether text can be sent to a database at all; half a surrogate pair can't.
    """
    return not any("\ud800" <= character <= "\udfff" for character in text)


def refuse_mixture(owner: str, states: Iterable[State]) -> None:
    """
    Refuse states of several kinds: one column holds one, and True would pass for 1.
    """
    kinds = sorted({type(state).__name__ for state in states if state is not None})
    if len(kinds) > 1:
        raise ImproperlyConfigured(f"{owner}: the states mix {' and '.join(kinds)}. Use values of one type.")
