"""
A diagram in the DOT language of Graphviz.
"""

from __future__ import annotations

from collections.abc import Iterator

from django_logic.graph.diagram import Diagram, Kind, State

__all__ = ["write_dot"]

ARROW_STYLES = {
    Kind.MOVE: "",
    Kind.START: ", style=dashed",
    Kind.FAILURE: ', style=dashed, color="#c62828", fontcolor="#c62828"',
    Kind.ACTION: ", style=dotted",
}


def write_dot(diagram: Diagram) -> str:
    """
    Write one ``digraph``.
    """
    return "\n".join(lines(diagram)) + "\n"


def lines(diagram: Diagram) -> Iterator[str]:
    """
    Yield the source line by line.
    """
    yield f"digraph {quoted(diagram.title)} {{"
    yield f"    graph [label={quoted(diagram.title)}, labelloc=t, rankdir=LR];"
    yield "    node [shape=box];"
    for state in diagram.states:
        yield f"    {state.key} [label={quoted(state.text)}{state_style(state)}];"
    for state in diagram.states:
        if state.is_initial:
            yield '    start [shape=point, width=0.15, label=""];'
            yield f"    start -> {state.key};"
    for arrow in diagram.arrows:
        label = quoted(*arrow.labels)
        yield f"    {arrow.source.key} -> {arrow.target.key} [label={label}{ARROW_STYLES[arrow.kind]}];"
    yield "}"


def state_style(state: State) -> str:
    """
    Return the attributes that mark a state: a second border is the end, a filled box the present.
    """
    shape = ["rounded"]
    shape += ["dashed"] if state.is_busy else []
    shape += ["filled"] if state.is_current else []
    found = f', style="{",".join(shape)}"'
    found += ", peripheries=2" if state.is_terminal else ""
    found += ', color="#c62828"' if state.is_failed else ""
    found += ', fillcolor="#ffd54f", penwidth=3' if state.is_current else ""
    return found


def quoted(*texts: str) -> str:
    r"""
    Return lines of text as one DOT string; a backslash, and the ``&`` of an entity, would be read as syntax.
    """
    safe = [text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for text in texts]
    return '"' + "\\n".join(safe) + '"'
