"""
Hold what was measured, contender by contender and round by round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median


@dataclass(slots=True, kw_only=True)
class Figure:
    """
    One measure of one contender: a value per round, or why there is none.
    """

    values: list[float] = field(default_factory=list)
    problem: str | None = None

    @property
    def is_measured(self) -> bool:
        """
        A contender with a problem shows the problem, never half of its rounds.
        """
        return self.problem is None and bool(self.values)

    def value(self) -> float:
        """
        Return the median of the rounds.
        """
        return median(self.values)

    def ratio_to(self, other: Figure) -> float:
        """
        Return how many times greater this one is: the median over rounds of the ratio within a round.
        """
        return median(mine / theirs for mine, theirs in zip(self.values, other.values, strict=False))


@dataclass(slots=True)
class Board:
    """
    All figures of a run, by contender and measure.
    """

    labels: dict[str, str] = field(default_factory=dict)
    figures: dict[str, dict[str, Figure]] = field(default_factory=dict)

    def figure(self, contender: str, measure: str) -> Figure:
        """
        Return a figure, an empty one the first time.
        """
        return self.figures.setdefault(contender, {}).setdefault(measure, Figure())

    def look_up(self, contender: str, measure: str) -> Figure | None:
        """
        Return a figure that was measured, or None.
        """
        found = self.figures.get(contender, {}).get(measure)
        return found if found is not None and found.is_measured else None

    def problems(self) -> Mapping[str, str]:
        """
        Return why measures are missing, by contender and measure.
        """
        return {
            f"{self.labels.get(contender, contender)}, {measure}": figure.problem
            for contender, measures in self.figures.items()
            for measure, figure in measures.items()
            if figure.problem is not None
        }
