"""
Showing how far long work has come, on a terminal and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import OutputWrapper

__all__ = ["Advance", "Bar", "progress"]

#: Tell that so many more units are done.
Advance = Callable[[int], None]

WIDTH = 30
#: Seconds between two drawings, so that drawing never costs more than the work.
PAUSE = 0.1
CLEAR = "\r\x1b[K"


class Bar:
    """
    Draw how far work has come; call it with each step.
    """

    def __init__(self, stream: Any, label: str, count: Callable[[], int]) -> None:
        self.stream, self.label = stream, label
        self.is_drawn = bool(stream.isatty())
        self.total = count() if self.is_drawn else 0
        self.done, self.drawn_at = 0, float("-inf")

    def __call__(self, steps: int) -> None:
        self.done += steps
        if self.is_drawn and time.monotonic() - self.drawn_at >= PAUSE:
            self.drawn_at = time.monotonic()
            self.write(CLEAR + self.line())

    def line(self) -> str:
        """
        Return the present picture; work that grew while it ran ends at 100%.
        """
        share = min(1.0, self.done / self.total) if self.total else 1.0
        filled = int(share * WIDTH)
        picture = "#" * filled + "." * (WIDTH - filled)
        return f"{self.label} [{picture}] {share:4.0%} ({self.done:,} of {max(self.done, self.total):,})"

    def clear(self) -> None:
        """
        Free the line for other output; the next step draws the bar again.
        """
        if self.is_drawn:
            self.write(CLEAR)
            self.drawn_at = float("-inf")

    def write(self, text: str) -> None:
        """
        Write a piece of a line; a command's own stream would end it, and colour it as an error.
        """
        if isinstance(self.stream, OutputWrapper):
            self.stream.write(text, style_func=str, ending="")
        else:
            self.stream.write(text)
        self.stream.flush()


@contextmanager
def progress(stream: Any, label: str, count: Callable[[], int]) -> Iterator[Bar]:
    """
    Show a bar while the block runs, if the stream is a terminal; call what it yields with each step.

    ``count`` is asked for the total only where a bar is drawn. The line is cleared at the end, however it comes.

    Example::

        with progress(sys.stderr, "shop.Order", queryset.count) as advance:
            advance(1000)
    """
    bar = Bar(stream, label, count)
    try:
        bar(0)
        yield bar
    finally:
        bar.clear()
