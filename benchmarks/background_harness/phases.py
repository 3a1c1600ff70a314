"""
Run every contender through every phase; within a phase in rounds, each in another order.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from background_harness.contender import NO_OP, ONE_WRITE
from background_harness.figures import Board
from harness.crew import Crew, KitUnavailable, Member

# The warm-up is sized so that the slowest engine takes a few seconds.
WARM_UP_JOBS, MAIN_CHILDREN = 80, 2
MOST_JOBS, FEWEST_JOBS = 4000, 40
PERCENTILE_PARTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    How long and how often each thing is measured; two children in every round, other numbers in the first ones.
    """

    rounds: int
    other_rounds: int
    seconds: float
    drains: Sequence[tuple[str, int]]
    calls: int
    latency_seconds: float
    deep_rows: Sequence[int]
    claim_rows: Sequence[int]
    attempts: int
    memory_step: int


QUICK = Plan(
    rounds=1,
    other_rounds=1,
    seconds=0.5,
    drains=((NO_OP, 2), (ONE_WRITE, 2)),
    calls=10,
    latency_seconds=3.0,
    deep_rows=(),
    claim_rows=(0, 100, 10_000),
    attempts=600,
    memory_step=100,
)
FULL = Plan(
    rounds=3,
    other_rounds=2,
    seconds=1.0,
    drains=tuple((workload, children) for workload in (NO_OP, ONE_WRITE) for children in (1, 2, 4)),
    calls=60,
    latency_seconds=8.0,
    deep_rows=(100, 1_000_000),
    claim_rows=(0, 100, 10_000, 100_000, 1_000_000),
    attempts=10_000,
    memory_step=1000,
)


def drain_measure(workload: str, children: int) -> str:
    """
    Name the pace of a drain.
    """
    return f"drain, {workload}, {children}"


class Run:
    """
    The phases of one run; what they find stands on the board.
    """

    def __init__(self, crew: Crew, plan: Plan) -> None:
        """
        Take the contenders that started.
        """
        self.plan, self.board = plan, Board()
        self.members: dict[str, Member] = {}
        self._profiles: dict[str, dict[str, Any]] = {}
        for member in crew.members:
            for key, profile in member.ask("extra", key="describe").items():
                self.members[key], self._profiles[key] = member, profile
                self.board.labels[key] = profile["label"]
        self._jobs: dict[str, int] = {}

    def warm_up(self) -> None:
        """
        Drain a little with each contender, unmeasured, and size its backlogs by that.
        """
        for key in self.members:
            _say(f"warm-up: {key}")
            children = self._profiles[key]["children"] or [MAIN_CHILDREN]
            answer = self._ask(key, "warm-up", "drain", jobs=WARM_UP_JOBS, children=children[0], workload=NO_OP)
            if answer is not None:
                pace = WARM_UP_JOBS / answer["seconds"]
                self._jobs[key] = round(min(max(pace * self.plan.seconds, FEWEST_JOBS), MOST_JOBS))

    def drains(self) -> None:
        """
        Measure enqueueing and draining.
        """
        for number in range(1, self.plan.rounds + 1):
            trials: list[tuple[str, Callable[[str], None]]] = []
            trials += [(key, self._enqueue) for key in self._having("enqueue")]
            for key in self._having("drain"):
                drains = self._drains_of(key)
                if number > self.plan.other_rounds:
                    drains = [drain for drain in drains if drain[1] == MAIN_CHILDREN]
                trials += [(key, self._drain_of(*drain)) for drain in drains]
            _say(f"enqueue and drain: round {number} of {self.plan.rounds}")
            for key, trial in random.Random(number).sample(trials, len(trials)):  # noqa: S311 (an order, not a secret)
                trial(key)

    def latencies(self) -> None:
        """
        Measure single calls to an idle worker.
        """
        for key in self._having("latency"):
            _say(f"latency: {key}")
            answer = self._ask(key, "p50", "latency", calls=self.plan.calls, seconds=self.plan.latency_seconds)
            if answer is not None:
                parts = quantiles(answer["milliseconds"], n=PERCENTILE_PARTS, method="inclusive")
                self.board.figure(key, "p50").values.append(parts[PERCENTILE_PARTS // 2 - 1])
                self.board.figure(key, "p95").values.append(parts[-1])
                self.board.figure(key, "calls").values.extend(answer["milliseconds"])

    def backlogs(self) -> None:
        """
        Measure the pace of one child in front of deep backlogs, and the library's claim by itself.
        """
        for key in self._having("deep") if self.plan.deep_rows else ():
            for rows in self.plan.deep_rows:
                _say(f"backlog of {rows:,}: {key}")
                jobs = max(FEWEST_JOBS, self._jobs[key] // 2)
                answer = self._ask(key, f"deep, {rows}", "deep", jobs=jobs, rows=rows)
                if answer is not None:
                    self.board.figure(key, f"deep, {rows}").values.append(jobs / answer["seconds"])
        for key in self._having("claims"):
            for rows in self.plan.claim_rows:
                _say(f"claims with {rows:,} rows: {key}")
                answer = self._ask(key, f"claim, {rows}", "claims", rows=rows)
                if answer is not None:
                    self.board.figure(key, f"claim, {rows}").values.extend(answer["milliseconds"])

    def memories(self) -> list[tuple[int, int, int]]:
        """
        Follow the library's memory over many attempts of one child.

        Shape: samples of (jobs done, RSS of the process that grew most, PSS of all), kB.
        """
        samples: list[tuple[int, int, int]] = []
        for key in self._having("memory"):
            _say(f"memory over {self.plan.attempts:,} attempts: {key}")
            answer = self._ask(key, "memory", "memory", attempts=self.plan.attempts, step=self.plan.memory_step)
            samples = [] if answer is None else [tuple(each) for each in answer["samples"]]
        return samples

    def _drains_of(self, key: str) -> list[tuple[str, int]]:
        only = self._profiles[key]["children"]
        fitting = [(workload, children) for workload, children in self.plan.drains if not only or children in only]
        return fitting or sorted({(workload, only[0]) for workload, _ in self.plan.drains})

    def _enqueue(self, key: str) -> None:
        jobs = self._jobs[key]
        answer = self._ask(key, "enqueue", "enqueue", jobs=jobs)
        if answer is not None:
            self.board.figure(key, "enqueue").values.append(jobs / answer["seconds"])

    def _drain_of(self, workload: str, children: int) -> Callable[[str], None]:
        def trial(key: str) -> None:
            measure = drain_measure(workload, children)
            jobs = self._jobs[key]
            answer = self._ask(key, measure, "drain", jobs=jobs, children=children, workload=workload)
            if answer is None:
                return
            self.board.figure(key, measure).values.append(answer.get("jobs", jobs) / answer["seconds"])
            if "pss" in answer:
                self.board.figure(key, f"memory, {workload}, {children}").values.append(answer["pss"])

        return trial

    def _having(self, measure: str) -> list[str]:
        return [key for key in self._jobs if measure in self._profiles[key]["measures"]]

    def _ask(self, key: str, measure: str, action: str, **arguments: Any) -> dict[str, Any] | None:
        """After a failure the contender stays out of that measure."""
        figure = self.board.figure(key, measure)
        if figure.problem is not None:
            return None
        try:
            return self.members[key].ask("extra", key=action, contender=key, **arguments)
        except KitUnavailable as error:
            figure.problem = str(error)
            return None


def _say(text: str) -> None:
    print(f"{text} …", file=sys.stderr)
