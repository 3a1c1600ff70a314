"""
A diagram as tables: aligned text for a terminal, Markdown for a page, plain data for programs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django_logic.graph.diagram import Diagram, Move, joined, printable, shown

__all__ = ["facts", "write_markdown", "write_table"]

Rows = list[list[str]]

#: What Markdown, and GitHub's additions to it, read as syntax inside a cell; underscores within a word are none.
SYNTAX = re.compile(r"[\\`*{}\[\]<>()#!|~&@$]|:(?=\S)|(?<![^\W_])_|_(?![^\W_])")


def write_table(diagram: Diagram) -> str:
    """
    Write aligned text for a terminal.
    """
    parts = [aligned(rows) for rows in (states_of(diagram), moves_of(diagram)) if rows[1:]]
    return "\n\n".join([diagram.title, *parts]) + "\n"


def write_markdown(diagram: Diagram) -> str:
    """
    Write Markdown tables under a heading.
    """
    parts = [piped(rows) for rows in (states_of(diagram), moves_of(diagram)) if rows[1:]]
    return "\n\n".join([f"## {escaped(diagram.title)}", *parts]) + "\n"


def facts(diagram: Diagram) -> dict[str, Any]:
    """
    Return a diagram as plain data that JSON can hold.
    """
    return {
        "model": diagram.model,
        "field": diagram.field,
        "process": diagram.process,
        "process_name": diagram.process_name,
        "states": [
            {"value": value_of(state.value), "text": state.text, "marks": state.marks} for state in diagram.states
        ],
        "transitions": [
            {
                "action": move.action,
                "label": move.label,
                "sources": [value_of(state) for state in move.sources],
                "target": value_of(move.target),
                "is_action": move.is_action,
                "is_background": move.is_background,
                "in_progress_state": value_of(move.in_progress_state),
                "failed_state": value_of(move.failed_state),
                "guards": list(move.guards),
                "declared_by": move.declared_by,
            }
            for move in diagram.moves
        ],
    }


def value_of(state: Any) -> Any:
    """
    Return a state as JSON can hold it.
    """
    return state if state is None or isinstance(state, (str, int)) else str(state)


def states_of(diagram: Diagram) -> Rows:
    """
    Return a row for each state, below a heading.
    """
    return [["State", "Marks"], *([state.text, ", ".join(state.marks)] for state in diagram.states)]


def moves_of(diagram: Diagram) -> Rows:
    """
    Return a row for each declaration, below a heading; columns that would be empty throughout are left out.
    """
    columns: dict[str, Callable[[Move], str]] = {
        "Action": lambda move: printable(move.action),
        "Label": lambda move: "" if move.label == printable(move.action) else move.label,
        "From": lambda move: joined(move.sources),
        "To": lambda move: "(stays)" if move.is_action else shown(move.target),
        "In progress": lambda move: joined([] if move.in_progress_state is None else [move.in_progress_state]),
        "On failure": lambda move: joined([] if move.failed_state is None else [move.failed_state]),
        "Guards": lambda move: printable(", ".join(move.guards)),
        "Background": lambda move: "yes" if move.is_background else "",
        "Declared by": lambda move: move.declared_by,
    }
    filled = {name: [tell(move) for move in diagram.moves] for name, tell in columns.items()}
    kept = {name: cells for name, cells in filled.items() if any(cells)}
    return [list(kept), *([cells[row] for cells in kept.values()] for row in range(len(diagram.moves)))]


def aligned(rows: Rows) -> str:
    """
    Return rows in columns as wide as their widest cell, with a rule below the heading.
    """
    widths = widths_of(rows)
    rule = ["-" * width for width in widths]
    return "\n".join(line.rstrip() for line in padded([rows[0], rule, *rows[1:]], widths, "  "))


def piped(rows: Rows) -> str:
    """
    Return rows as a Markdown table.
    """
    safe = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(3, width) for width in widths_of(safe)]
    rule = ["-" * width for width in widths]
    return "\n".join(f"| {line} |" for line in padded([safe[0], rule, *safe[1:]], widths, " | "))


def padded(rows: Rows, widths: Sequence[int], gap: str) -> Iterable[str]:
    """
    Yield each row as a line.
    """
    for row in rows:
        yield gap.join(cell + " " * (width - columns_of(cell)) for cell, width in zip(row, widths, strict=True))


def widths_of(rows: Rows) -> list[int]:
    """
    Return how wide each column is.
    """
    return [max(columns_of(cell) for cell in column) for column in zip(*rows, strict=True)]


def columns_of(text: str) -> int:
    """
    Return how many columns of a terminal text takes: East Asian signs take two, accents none.
    """
    return sum(0 if unicodedata.combining(sign) else 1 + (unicodedata.east_asian_width(sign) in "WF") for sign in text)


def escaped(text: str) -> str:
    """
    Return text as Markdown shows it to the letter.
    """
    return SYNTAX.sub(lambda found: "\\" + found[0], text)
