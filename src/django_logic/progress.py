"""
Showing how far long work has come, on a terminal and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import OutputWrapper

__all__ = ["Advance", "progress"]

#: Tell that so many more units are done.
Advance = Callable[[int], None]

WIDTH = 30
#: Seconds between two drawings, so that drawing never costs more than the work.
PAUSE = 0.1
CLEAR = "\r\x1b[K"


@contextmanager
def progress(stream: Any, label: str, count: Callable[[], int]) -> Iterator[Advance]:
    """
    Draw a bar while the block runs, if the stream is a terminal; call what it yields with each step.

    ``count`` is asked for the total only where a bar is drawn. The line is cleared at the end, however it comes.

    Example::

        with progress(sys.stderr, "shop.Order", queryset.count) as advance:
            advance(1000)
    """
    if not stream.isatty():
        yield lambda steps: None
        return
    write, total = writer_to(stream), count()
    done, drawn = 0, float("-inf")

    def advance(steps: int) -> None:
        nonlocal done, drawn
        done += steps
        if time.monotonic() - drawn >= PAUSE:
            drawn = time.monotonic()
            write(CLEAR + bar(label, done, total))

    try:
        advance(0)
        yield advance
    finally:
        write(CLEAR)


def writer_to(stream: Any) -> Callable[[str], None]:
    """
    Return how to write a piece of a line; a command's own stream would end it and colour it as an error.
    """

    def write(text: str) -> None:
        if isinstance(stream, OutputWrapper):
            stream.write(text, style_func=str, ending="")
        else:
            stream.write(text)
        stream.flush()

    return write


def bar(label: str, done: int, total: int) -> str:
    """
    Draw one line; work that grew while it ran ends at 100%.
    """
    share = min(1.0, done / total) if total else 1.0
    filled = int(share * WIDTH)
    return f"{label} [{'#' * filled}{'.' * (WIDTH - filled)}] {share:4.0%} ({done:,} of {max(done, total):,})"
