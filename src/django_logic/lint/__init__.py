"""
An audit of source text: who writes a bound state past its process.

It reads syntax trees and imports nothing of what it reads; from the running project it takes only which fields are
bound. What it can't see is raw SQL and names made at run time: those are what `TransitionConstraint` refuses.
"""

from __future__ import annotations

import ast
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from django_logic.lint.files import allowances, python_files
from django_logic.lint.watch import Watch, Watched, watch
from django_logic.lint.writes import RULES, Write, writes_in

__all__ = ["RULES", "Finding", "Watch", "Watched", "check_file", "check_text", "python_files", "watch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    Hold one write, or one file that can't be read; ``allowed`` is the reason a comment gives for it.
    """

    path: str
    line: int
    column: int
    code: str
    text: str
    allowed: str = ""

    def __str__(self) -> str:
        told = f" (allowed: {self.allowed})" if self.allowed else ""
        return f"{self.path}:{self.line}:{self.column}: {self.code} {self.text}{told}"


def check_file(path: Path, watched: Watch) -> list[Finding]:
    """
    List the writes in a file, allowed ones included.
    """
    try:
        with tokenize.open(path) as file:
            text = file.read()
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        return [unreadable(str(path), error)]
    return check_text(text, watched, path=str(path))


def check_text(text: str, watched: Watch, *, path: str = "<text>") -> list[Finding]:
    """
    List the writes in source text, allowed ones included.

    Example::

        check_text("order.status = 'paid'", watch())
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the compiler thinks of the text is another tool's matter
            tree = ast.parse(text, filename=path)
        # Most files name no watched field at all; they are parsed to know that they can be read.
        is_silent = not any(name in text for name in watched.fields)
        module = watched.modules.get(str(Path(path).resolve()), "")
        writes = [] if is_silent else writes_in(tree, watched, module)
        comments = allowances(text) if writes else {}
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError) as error:
        return [unreadable(path, error)]
    return list(findings(writes, comments, path))


def findings(writes: Sequence[Write], comments: dict[int, str], path: str) -> Iterator[Finding]:
    """
    Yield a finding for each write, allowed where a comment on its lines gives a reason.
    """
    for write in writes:
        reasons = [comments[line] for line in write.lines if line in comments]
        allowed = next(filter(None, reasons), "")
        hint = " The comment that allows it needs a reason." if reasons and not allowed else ""
        text = (
            f"`{write.shown}` writes {write.field!r}, a state of {', '.join(write.labels)}, past its process."
            f" Run an action or transition_to(), or say why not: # dl: allow <reason>.{hint}"
        )
        yield Finding(path=path, line=write.line, column=write.column, code=write.code, text=text, allowed=allowed)


def unreadable(path: str, error: Exception) -> Finding:
    """
    Report a file that can't be audited, in one line.
    """
    line, column = (error.lineno or 1, error.offset or 1) if isinstance(error, SyntaxError) else (1, 1)
    told = (error.msg if isinstance(error, SyntaxError) else str(error)) or type(error).__name__
    return Finding(
        path=path,
        line=line,
        column=max(column, 1),
        code="DL000",
        text=f"can't be read: {' '.join(told.split())}. Mend or exclude it, since nothing in it was audited.",
    )
