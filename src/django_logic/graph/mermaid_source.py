"""
A diagram as Mermaid source, which GitHub, GitLab and many editors draw.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from django_logic.graph.diagram import Arrow, Diagram, Kind, State

__all__ = ["write_mermaid"]

#: What Mermaid or the Markdown inside its labels could read as syntax: all but letters, digits, spaces and a few
#: signs; of those an underscore or hyphen at the edge of a word, and what ends a list's number; and the one command
#: that Mermaid finds even inside quotes.
SYNTAX = re.compile(
    r"[^\w\s,.()'-]|(?<![^\W_])[_-]|[_-](?![^\W_])|(?<=\d)[.)](?=\s|$)|d(?=irection\s+(?:TB|BT|RL|LR))",
    re.IGNORECASE,
)

#: Mermaid can't style the arrows of a state diagram, so words tell them apart.
WORDS = {Kind.MOVE: "", Kind.START: " (starts)", Kind.FAILURE: " (fails)", Kind.ACTION: " (stays)"}

#: One class for each mark; both colours of a pair are set, so that a dark theme stays readable.
STYLES = {
    "failed": "stroke:#c62828,stroke-width:2px",
    "busy": "stroke-dasharray:5 4",
    "current": "fill:#ffd54f,color:#000,stroke:#000,stroke-width:3px",
}


def write_mermaid(diagram: Diagram) -> str:
    """
    Write a ``stateDiagram-v2``.
    """
    return "\n".join(lines(diagram)) + "\n"


def lines(diagram: Diagram) -> Iterator[str]:
    """
    Yield the source line by line.
    """
    yield from ("---", f"title: {json.dumps(diagram.title)}", "---", "stateDiagram-v2")
    for state in diagram.states:
        yield f'    state "{escaped(state.text)}" as {state.key}'
    for state in diagram.states:
        if state.is_initial:
            yield f"    [*] --> {state.key}"
    for arrow in diagram.arrows:
        yield f"    {arrow.source.key} --> {arrow.target.key} : {arrow_text(arrow)}"
    for state in diagram.states:
        if state.is_terminal:
            yield f"    {state.key} --> [*]"
    yield from styles(diagram.states)


def styles(states: tuple[State, ...]) -> Iterator[str]:
    """
    Yield a class for each mark that occurs, and the states that wear it.
    """
    worn = {
        "failed": [state.key for state in states if state.is_failed],
        "busy": [state.key for state in states if state.is_busy],
        "current": [state.key for state in states if state.is_current],
    }
    for name, keys in worn.items():
        if keys:
            yield f"    classDef {name} {STYLES[name]}"
            yield f"    class {','.join(keys)} {name}"


def arrow_text(arrow: Arrow) -> str:
    """
    Return what stands beside an arrow.
    """
    return ", ".join(escaped(label) + WORDS[arrow.kind] for label in arrow.labels)


def escaped(text: str) -> str:
    """
    Return text as Mermaid shows it to the letter.
    """
    return SYNTAX.sub(lambda found: f"#{ord(found[0])};", text)
