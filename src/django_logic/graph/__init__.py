"""
The states and moves of a process as text: Mermaid, DOT, tables, and plain data.

Everything takes a Process class, a binding (an entry of ``ProcessManager.bindings``) or an object's process, whose
state is then marked. Nothing here draws: the text goes to whatever does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django_logic.graph.diagram import Arrow, Diagram, Kind, Move, State
from django_logic.graph.dot_source import write_dot
from django_logic.graph.mermaid_source import write_mermaid
from django_logic.graph.reading import UNSET, Source, read
from django_logic.graph.tables import facts, write_markdown, write_table

__all__ = [
    "UNSET",
    "WRITERS",
    "Arrow",
    "Diagram",
    "Kind",
    "Move",
    "Source",
    "State",
    "data",
    "dot",
    "facts",
    "markdown",
    "mermaid",
    "read",
    "table",
]

#: What turns a diagram into text, by the name of the format.
WRITERS: Mapping[str, Callable[[Diagram], str]] = {
    "mermaid": write_mermaid,
    "dot": write_dot,
    "table": write_table,
    "markdown": write_markdown,
}


def mermaid(
    source: Source, *, state: Any = UNSET, exclude: Iterable[str] = (), only: Iterable[str] | None = None
) -> str:
    """
    Return a Mermaid ``stateDiagram-v2``.

    Example::

        graph.mermaid(order.process, exclude=["touch"])
    """
    return write_mermaid(read(source, state=state, exclude=exclude, only=only))


def dot(source: Source, *, state: Any = UNSET, exclude: Iterable[str] = (), only: Iterable[str] | None = None) -> str:
    """
    Return a DOT ``digraph`` for Graphviz.
    """
    return write_dot(read(source, state=state, exclude=exclude, only=only))


def table(source: Source, *, state: Any = UNSET, exclude: Iterable[str] = (), only: Iterable[str] | None = None) -> str:
    """
    Return aligned text: a table of the states and one of the moves.
    """
    return write_table(read(source, state=state, exclude=exclude, only=only))


def markdown(
    source: Source, *, state: Any = UNSET, exclude: Iterable[str] = (), only: Iterable[str] | None = None
) -> str:
    """
    Return the same tables in Markdown.
    """
    return write_markdown(read(source, state=state, exclude=exclude, only=only))


def data(
    source: Source, *, state: Any = UNSET, exclude: Iterable[str] = (), only: Iterable[str] | None = None
) -> dict[str, Any]:
    """
    Return the same as plain data that JSON can hold.
    """
    return facts(read(source, state=state, exclude=exclude, only=only))
