"""
Which numbers settings, declarations and options may hold: each rule returns what is wrong with a value, or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

__all__ = ["LONGEST_WAIT", "Rule", "count", "duration", "is_number", "number"]

#: A hundred years in seconds: nothing waits for longer, and every driver reads the time it leads to.
LONGEST_WAIT = 3_155_760_000.0
#: What an integer column holds in every database.
LARGEST_COUNT = 2_147_483_647

Rule = Callable[[Any], str | None]


def is_number(value: Any) -> bool:
    """
    Tell whether this is a finite number, however large; True and text are none.
    """
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def number(*, most: float, above: float | None = None, least: float = 0, whole: bool = False) -> Rule:
    """
    Make a rule that accepts numbers in a range.
    """

    def rule(value: Any) -> str | None:
        if not is_number(value):
            return "expected a number"
        if whole and value != int(value):
            return "expected a whole number"
        if above is not None and value <= above:
            return f"expected more than {above}"
        if value < least:
            return f"expected at least {least}"
        return f"expected at most {most:.0f}" if value > most else None

    return rule


def count() -> Rule:
    """
    Make a rule that accepts whole numbers from 1.
    """
    return number(least=1, most=LARGEST_COUNT, whole=True)


def duration(unit: float = 1, *, above: float | None = None, least: float = 0) -> Rule:
    """
    Make a rule that accepts what every clock can add, in units of so many seconds.
    """
    return number(above=above, least=least, most=LONGEST_WAIT / unit)
