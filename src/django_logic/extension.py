"""
How optional apps take part in a move without the core importing them.

A contributor adds rows that are inserted with the move, in its transaction; a gate says which objects are busy. Both
are registered in ``AppConfig.ready()``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from django.dispatch import Signal

from django_logic.exceptions import Refusal
from django_logic.rows import SEQUENCE, Row
from django_logic.subject import Column

if TYPE_CHECKING:
    from django_logic.moves import Move

__all__ = [
    "SEQUENCE",
    "Companion",
    "Contributor",
    "Gate",
    "Row",
    "blocked",
    "companion",
    "contributed",
    "contributors_are_active",
    "observe",
    "observers",
    "register_companion",
    "register_contributor",
    "register_gate",
    "unregister",
    "written",
]


class Contributor(Protocol):
    """
    Turn a move into the rows that must agree with it.
    """

    def __call__(self, move: Move) -> Iterable[Row]: ...


class Gate(Protocol):
    """
    Say which of these objects are busy, by their key.
    """

    def __call__(self, column: Column, alias: str, keys: Sequence[str]) -> Mapping[str, Refusal]: ...


class Companion(NamedTuple):
    """
    Hold what a worker may keep running beside its children: how it lives, what says that it could, and what it opens.
    """

    live: Callable[..., Any]
    check: Callable[[], None]
    connections: Callable[[], int]


_companions: dict[str, Companion] = {}
_contributors: dict[Contributor, Callable[[], bool]] = {}
_listeners: dict[Contributor, Callable[[str], None]] = {}
_gates: list[Gate] = []
_observers: dict[Signal, list[Callable[..., None]]] = {}


def register_contributor(
    contributor: Contributor,
    is_active: Callable[[], bool] = lambda: True,
    after_write: Callable[[str], None] | None = None,
) -> None:
    """
    Ask this contributor for rows at every move from now on, while ``is_active()``; again changes nothing.

    ``after_write`` is called with the alias once rows are written; whether they are committed it has to ask itself.
    """
    _contributors.setdefault(contributor, is_active)
    if after_write is not None:
        _listeners[contributor] = after_write


def register_companion(
    name: str, live: Callable[..., Any], check: Callable[[], None], connections: Callable[[], int] = lambda: 1
) -> None:
    """
    Let workers keep a process beside their children, in which ``live`` is called until SIGTERM.

    It is called with ``alias``, ``listen_alias``, ``grace`` in seconds and the worker's ``name``. ``check`` raises
    ImproperlyConfigured for what could not work; ``connections`` says how many of the database's it opens at most.
    """
    _companions[name] = Companion(live, check, connections)


def companion(name: str) -> Companion:
    """
    Return what an app registered.

    Raises: LookupError for a name that no installed app did.
    """
    return _companions[name]


def register_gate(gate: Gate) -> None:
    """
    Ask this gate before every call of a process that declares background work; again changes nothing.
    """
    if gate not in _gates:
        _gates.append(gate)


def observe(signal: Signal, observer: Callable[..., None]) -> None:
    """
    Tell the library's own log or audit what a signal tells, before and apart from a project's receivers.
    """
    watching = _observers.setdefault(signal, [])
    if observer not in watching:
        watching.append(observer)


def observers(signal: Signal) -> Sequence[Callable[..., None]]:
    """
    Return who observes a signal.
    """
    return _observers.get(signal, ())


def unregister(member: Callable[..., Any]) -> None:
    """
    Forget a contributor or a gate.
    """
    _contributors.pop(member, None)
    _listeners.pop(member, None)
    if member in _gates:
        _gates.remove(member)


def contributed(move: Move) -> tuple[Row, ...]:
    """
    Collect the rows of every contributor for a move.
    """
    return tuple(row for contributor, is_active in _contributors.items() if is_active() for row in contributor(move))


def written(alias: str) -> None:
    """
    Tell contributors that what they gave is in the database, or in a transaction that is still open.
    """
    for contributor, after_write in _listeners.items():
        if _contributors[contributor]():
            after_write(alias)


def contributors_are_active() -> bool:
    """
    Tell whether anybody would be asked for rows now.
    """
    return any(is_active() for is_active in _contributors.values())


def blocked(column: Column, alias: str, keys: Sequence[str]) -> dict[str, Refusal]:
    """
    Return why objects are busy, by their key; those that are free are absent.
    """
    found: dict[str, Refusal] = {}
    for gate in _gates:
        found.update(gate(column, alias, keys))
    return found
