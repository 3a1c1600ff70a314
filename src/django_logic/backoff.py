"""
How long to wait before something is tried again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_logic import numbers
from django_logic.numbers import LONGEST_WAIT

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """
    Let pauses grow from attempt to attempt, spread so that an outage's end is no stampede.

    Units: seconds for ``first`` and ``limit``; ``jitter`` is the share by which a pause may be shorter or longer.
    Raises: ImproperlyConfigured for values that make no sense.
    """

    first: float = 30
    factor: float = 2.0
    limit: float = 3600
    jitter: float = 0.1

    def __post_init__(self) -> None:
        for name, least, most in (
            ("first", 0, LONGEST_WAIT),
            ("factor", 1, None),
            ("limit", 0, LONGEST_WAIT),
            ("jitter", 0, 1),
        ):
            value: Any = getattr(self, name)
            if not numbers.is_number(value) or value < least or (most is not None and value > most):
                raise ImproperlyConfigured(
                    f"Backoff: {name}={value!r} makes no sense. first and limit are seconds"
                    " from 0, factor is a number from 1, jitter lies between 0 and 1."
                )

    def pause(self, errors: int) -> float:
        """
        Return how long to wait after this many errors.
        """
        try:
            grown = min(self.limit, self.first * self.factor ** max(0, errors - 1))
        except OverflowError:  # past every limit
            grown = self.limit
        return float(grown * (1 + random.uniform(-self.jitter, self.jitter)))  # noqa: S311 (spreads load, no secret)
