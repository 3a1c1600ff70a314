"""
The stage: how the story speaks, shows code with what came back, and checks that it came out as told.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import StringIO
from typing import Any, Literal, TextIO, TypeVar

from django.core.management import call_command

from example.story.shown import expression_of, source_of

__all__ = ["NotAsTold", "Stage", "wants_colours"]

T = TypeVar("T")
E = TypeVar("E", bound=Exception)
Style = Literal["bold", "dim", "red", "green", "cyan", "yellow"]

CODES: dict[Style, str] = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
WIDEST = 100
NARROWEST = 40


class NotAsTold(Exception):
    """
    Say that something was let through that the story tells is refused.
    """


def wants_colours(out: TextIO) -> bool:
    """
    Tell whether colours suit this output: a terminal that can show them, and nobody who forbids them.
    """
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Stage:
    """
    Print the story and keep count of its facts.
    """

    def __init__(self, out: TextIO, *, colours: bool, pauses: bool) -> None:
        self.out = out
        self.colours = colours
        self.pauses = pauses
        self.width = max(NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))
        self.chapter = ""
        self.facts = 0
        self.failures: list[str] = []

    def open(self, number: int, total: int, title: str) -> None:
        """
        Begin a chapter; wait for Enter before every one but the first.
        """
        if self.pauses and number > 1:
            # Ctrl-D at the prompt means: go on without asking.
            with suppress(EOFError):
                input(self.styled("\nPress Enter to go on, Ctrl-C to stop. ", "dim"))
        self.chapter = f"chapter {number}, {title}"
        heading = f"── {number} of {total}: {title} "
        self.line("")
        self.line(self.styled(heading.ljust(self.width, "─"), "bold"))

    def say(self, text: str) -> None:
        """
        Tell something in words.
        """
        self.line("")
        self.line(textwrap.fill(" ".join(text.split()), self.width, initial_indent="  ", subsequent_indent="  "))

    def note(self, text: str) -> None:
        """
        Tell what is different here, or only simulated.
        """
        self.line("")
        filled = textwrap.fill(f"Note: {' '.join(text.split())}", self.width - 2)
        self.line(textwrap.indent(self.styled(filled, "yellow"), "  "))

    def run(self, step: Callable[[], T], *, name: str = "") -> T:
        """
        Print the code of a lambda, run it, and print what came back; with ``name`` it is shown as an assignment.
        """
        self.code(f"{name} = {expression_of(step)}" if name else expression_of(step))
        result = step()
        if not name:
            self.result(repr(result))
        return result

    def command(self, *words: str) -> None:
        """
        Print a command line, run that command, and print what it wrote.
        """
        self.typed(f"python example/manage.py {' '.join(words)}")
        written = StringIO()
        # A progress bar would be drawn into the story.
        call_command(*words, stdout=written, stderr=StringIO())
        self.block("\n".join(map(self.folded, written.getvalue().splitlines())))

    def typed(self, line: str) -> None:
        """
        Print a command line.
        """
        self.line("")
        self.line("  " + self.styled("$ ", "dim") + self.styled(line, "cyan"))

    def refused(self, step: Callable[[], Any], kind: type[E]) -> E:
        """
        Print the code of a lambda, run it, and print the exception that it has to end with.

        Raises: NotAsTold when it does not.
        """
        self.code(expression_of(step))
        try:
            result = step()
        except kind as error:
            # Whatever a database adds below the first line names its own functions.
            self.result(f"{type(error).__name__}: {str(error).splitlines()[0]}", "red")
            return error
        raise NotAsTold(f"{expression_of(step)} was expected to end with {kind.__name__}; it returned {result!r}.")

    def source(self, function: Callable[..., Any]) -> None:
        """
        Print a function as it is written.
        """
        self.line("")
        for row in source_of(function).splitlines():
            self.line("      " + self.styled(row, "cyan"))

    def folded(self, row: str) -> str:
        """
        Fold a line that is too long where a word ends, and leave every other one, such as a table's, as it is.
        """
        width = self.width - 2
        if len(row) <= width:
            return row
        return textwrap.fill(row, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)

    def code(self, text: str) -> None:
        """
        Print code the way Python's own prompt would.
        """
        self.line("")
        for prompt, row in zip([">>>", *["..."] * text.count("\n")], text.splitlines(), strict=True):
            self.line(f"  {self.styled(prompt, 'dim')} {self.styled(row, 'cyan')}")

    def result(self, text: str, style: Style = "bold") -> None:
        """
        Print what came back, if anything did.
        """
        if text != "None":
            filled = textwrap.fill(text, self.width - 6, break_long_words=False, break_on_hyphens=False)
            for row in filled.splitlines():
                self.line("      " + self.styled(row, style))

    def block(self, text: str) -> None:
        """
        Print text as it is, indented.
        """
        self.line("")
        self.line(textwrap.indent(text.rstrip("\n"), "  "))

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """
        Print rows under a header in columns as wide as their widest entry; the last one may run on.
        """
        widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
        lines = ["  ".join(entry.ljust(width) for entry, width in zip(row, widths, strict=True)) for row in rows]
        head = "  ".join(entry.ljust(width) for entry, width in zip(header, widths, strict=True))
        self.block("\n".join(line.rstrip() for line in [head, "  ".join("-" * width for width in widths), *lines]))

    def fact(self, text: str, found: Any, expected: Any) -> None:
        """
        Check one outcome, and say so either way.
        """
        self.facts += 1
        if found == expected:
            self.line(f"  {self.styled('✓', 'green')} {text}")
        else:
            self.fail(f"{text}: expected {expected!r}, found {found!r}")

    def fail(self, text: str) -> None:
        """
        Write down that the story did not come out as told.
        """
        self.failures.append(f"{self.chapter}: {text}")
        self.line(f"  {self.styled('✗', 'red')} {text}")

    def styled(self, text: str, style: Style) -> str:
        """
        Dress text up where colours are wanted.
        """
        return f"\033[{CODES[style]}m{text}\033[0m" if self.colours else text

    def line(self, text: str) -> None:
        """
        Print one line at once, so that a reader sees it while the next step runs.
        """
        print(text, file=self.out, flush=True)
