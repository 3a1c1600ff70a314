"""
Promises of the progress bar.
"""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management.base import OutputWrapper
from django.core.management.color import color_style

from django_logic import progress as bars
from django_logic.progress import CLEAR, progress


class Terminal(io.StringIO):
    """
    Pretend to be a terminal.
    """

    def isatty(self) -> bool:
        """
        Say so.
        """
        return True


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Draw at every step.
    """
    monkeypatch.setattr(bars, "PAUSE", 0)


def pictures(terminal: io.StringIO) -> list[str]:
    """
    Return what was drawn, one after the other.
    """
    return terminal.getvalue().split(CLEAR)[1:]


def test_bar_fills_on_a_terminal(eager: None) -> None:
    """
    Each step shows the share and the counts, and the line is empty at the end.
    """
    terminal = Terminal()

    with progress(terminal, "shop.Order", lambda: 3000) as advance:
        advance(1500)
        advance(1500)

    assert pictures(terminal) == [
        f"shop.Order [{'.' * 30}]   0% (0 of 3,000)",
        f"shop.Order [{'#' * 15}{'.' * 15}]  50% (1,500 of 3,000)",
        f"shop.Order [{'#' * 30}] 100% (3,000 of 3,000)",
        "",
    ]


def test_nothing_is_drawn_or_counted_elsewhere() -> None:
    """
    A file or a pipe gets nothing, and the total is not asked for.
    """
    stream = io.StringIO()

    with progress(stream, "shop.Order", lambda: pytest.fail("counted")) as advance:
        advance(10)
        advance.clear()

    assert stream.getvalue() == ""


def test_bar_is_cleared_when_the_work_fails(eager: None) -> None:
    """
    An exception leaves no half line behind.
    """
    terminal = Terminal()

    with pytest.raises(KeyboardInterrupt), progress(terminal, "x", lambda: 1):
        raise KeyboardInterrupt

    assert terminal.getvalue().endswith(CLEAR)


@pytest.mark.parametrize(("total", "done", "ending"), [(0, 0, "100% (0 of 0)"), (5, 9, "100% (9 of 9)")])
def test_work_of_unforeseen_size_ends_at_all(eager: None, total: int, done: int, ending: str) -> None:
    """
    Nothing to do, and more than was counted, are both 100%.
    """
    terminal = Terminal()

    with progress(terminal, "x", lambda: total) as advance:
        advance(done)

    assert pictures(terminal)[-2].endswith(ending)


def test_drawing_waits_between_two_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A thousand quick steps do not draw a thousand bars; after a clear the next step draws at once.
    """
    monkeypatch.setattr(bars, "PAUSE", 3600)
    terminal = Terminal()

    with progress(terminal, "x", lambda: 1000) as advance:
        for _ in range(1000):
            advance(1)
        drawn = len(pictures(terminal))
        advance.clear()
        advance(0)

    assert drawn == 1
    assert pictures(terminal)[-2].endswith("(1,000 of 1,000)")


def test_stream_of_a_command_is_neither_ended_nor_coloured(eager: None) -> None:
    """
    A command's own error stream gets the bar as it is.
    """
    terminal = Terminal()
    stream: Any = OutputWrapper(terminal)
    stream.style_func = color_style(force_color=True).ERROR

    with progress(stream, "x", lambda: 1) as advance:
        advance(1)

    assert pictures(terminal) == [f"x [{'.' * 30}]   0% (0 of 1)", f"x [{'#' * 30}] 100% (1 of 1)", ""]
