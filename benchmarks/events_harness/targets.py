"""
The bounds the project set itself for events, and how a run is judged by them.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from background_harness.figures import Board
from background_harness.targets import Verdict
from events_harness.phases import DEEP, OURS, SHALLOW, Plan

#: What a message may add to a move, how late it may come, and what delivered rows may cost.
COST, LAG, DEPTH = 1.25, 20.0, 1.5
NOISE_LIMIT, BUSY_SHARE = 1.5, 0.5
COSTS = (
    ("fast path", "fast", "client"),
    ("fast path, prepared", "fast", "server"),
    ("one side effect", "effect", "client"),
    ("one side effect, prepared", "effect", "server"),
    ("bulk move", "bulk", "client"),
)


def judge(board: Board, plan: Plan) -> list[Verdict]:
    """
    Compare a run with every bound.
    """
    verdicts = [
        Verdict(text=f"{name}: with a message / without", found=ratio(board, shape, by, "on"), at_most=COST)
        for name, shape, by in COSTS
    ]
    soon = board.look_up(OURS, "lag, idle")
    verdicts.append(
        Verdict(text="commit to subscriber, idle relay, p50, ms", found=soon.value() if soon else None, at_most=LAG)
    )
    few, many = plan.sent_rows
    rows = f"{many:,} delivered rows / at {few:,}"
    quick, slow = board.look_up(OURS, f"claim, {SHALLOW}"), board.look_up(OURS, f"claim, {DEEP}")
    verdicts.append(
        Verdict(
            text=f"claim time at {rows}", found=slow.value() / quick.value() if quick and slow else None, at_most=DEPTH
        )
    )
    quick, slow = board.look_up(OURS, f"drain, {SHALLOW}"), board.look_up(OURS, f"drain, {DEEP}")
    found = quick.ratio_to(slow) if quick and slow else None
    verdicts.append(Verdict(text=f"time of a relay at {rows}", found=found, at_most=DEPTH))
    return verdicts


def ratio(board: Board, shape: str, by: str, way: str, key: str = OURS) -> float | None:
    """
    Return how many times longer a move takes that way than without a message.
    """
    alone, told = board.look_up(key, f"cost, {shape}, {by}, off"), board.look_up(key, f"cost, {shape}, {by}, {way}")
    return told.ratio_to(alone) if alone and told else None


def doubts(board: Board, load: float, cores: int, *, is_quick: bool) -> Iterable[str]:
    """
    Yield why this run should not be cited.
    """
    if is_quick:
        yield "a quick run shows that everything works, not how fast"
    alone = board.look_up(OURS, "cost, fast, client, off")
    if alone and (spread := max(alone.values) / median(alone.values)) > NOISE_LIMIT:
        yield f"a round of moves without a message took {spread:.1f} x the median; ratios alone can be trusted"
    if load > cores * BUSY_SHARE:
        yield f"the machine was busy before the run began (load {load} on {cores} cores)"
