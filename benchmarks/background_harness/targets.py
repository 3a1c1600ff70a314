"""
The bounds the project set itself, and how a run is judged by them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from background_harness.contender import NO_OP, WORKLOADS
from background_harness.figures import Board
from background_harness.phases import Plan, drain_measure

OURS, LIMIT, OLDER = "ours", "limit", "django_logic_0.17.2"
RIVALS = ("procrastinate", "procrastinate_threads")
# One page more or less in a process of some 15,000 is not growth.
FLAT = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """
    A figure beside its bound.

    Shape: found None where something was not measured; met None with it.
    """

    text: str
    found: float | None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        """
        Tell whether the bound is kept.
        """
        if self.found is None:
            return None
        if self.at_least is not None:
            return self.found >= self.at_least
        return self.at_most is None or self.found <= self.at_most

    def as_facts(self) -> dict[str, Any]:
        """
        Return the verdict for the JSON document.
        """
        return {**asdict(self), "met": self.met}


def judge(board: Board, samples: list[tuple[int, int, int]], plan: Plan) -> list[Verdict]:
    """
    Compare a run with every bound it has figures for.
    """
    deepest = plan.claim_rows[-1]
    verdicts = [_pace(board, (workload, 2), (OLDER,), 9.0, "published django-logic 0.17.2") for workload in WORKLOADS]
    verdicts += [_pace(board, drain, RIVALS, 1.0, "procrastinate, same writes") for drain in plan.drains]
    verdicts += [_pace(board, drain, (LIMIT,), 0.45, "pgbench limit") for drain in plan.drains]
    median = board.look_up(OURS, "p50")
    verdicts.append(
        Verdict(text="call to done, idle worker, p50, ms", found=median.value() if median else None, at_most=10.0)
    )
    few, many = board.look_up(OURS, "claim, 100"), board.look_up(OURS, f"claim, {deepest}")
    ratio = many.value() / few.value() if few and many else None
    verdicts.append(Verdict(text=f"claim time at {deepest:,} rows / at 100", found=ratio, at_most=1.5))
    verdicts.append(Verdict(text=_memory_text(samples), found=growth(samples), at_most=FLAT))
    return verdicts


def growth(samples: list[tuple[int, int, int]]) -> float | None:
    """
    Return the last memory over the first sample's, or None with fewer than two samples.
    """
    if len(samples) <= 1:
        return None
    return samples[-1][1] / samples[0][1]


def doubts(board: Board, load: float, cores: int, *, is_quick: bool) -> Iterable[str]:
    """
    Yield why this run should not be cited.
    """
    if is_quick:
        yield "a quick run shows that everything works, not how fast"
    yardstick = board.look_up(LIMIT, drain_measure(NO_OP, 2))
    # The yardstick does the same work in every round; when its rounds differ by more, something else ran here.
    if yardstick and (spread := max(yardstick.values) / min(yardstick.values)) > 1.5:
        yield f"the yardstick's rounds differ by {spread:.1f} x"
    if load > cores * 0.5:
        yield f"the machine was busy before the run began (load {load} on {cores} cores)"


def _pace(board: Board, drain: tuple[str, int], rivals: Iterable[str], bound: float, name: str) -> Verdict:
    """Where a rival can be run in two ways, the faster one counts."""
    measure = drain_measure(*drain)
    mine = board.look_up(OURS, measure)
    theirs = [found for rival in rivals if (found := board.look_up(rival, measure))]
    ratio = min((mine.ratio_to(each) for each in theirs), default=None) if mine else None
    return Verdict(text=f"drain, {drain[0]}, {drain[1]} at a time / {name}", found=ratio, at_least=bound)


def _memory_text(samples: list[tuple[int, int, int]]) -> str:
    if not samples:
        return "RSS of a worker, last sample / first"
    return f"RSS after {samples[-1][0]:,} attempts / after {samples[0][0]:,}"
