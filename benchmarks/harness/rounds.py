"""
Run every contender in every round, so that a noisy minute hits all of them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from harness.crew import Crew, KitUnavailable, Member


@dataclass(slots=True, kw_only=True)
class Result:
    """
    What one contender did in each round, or why it did nothing.
    """

    key: str
    label: str
    units: int
    seconds: list[float] = field(default_factory=list)
    statements: int | None = None
    problem: str | None = None

    @property
    def is_measured(self) -> bool:
        """
        A contender with a problem shows the problem, never half of its rounds.
        """
        return self.problem is None and bool(self.seconds)

    def rates(self) -> list[float]:
        """
        Return moves per second of each round.
        """
        return [self.units / seconds for seconds in self.seconds]

    def rate(self) -> float:
        """
        Return the median of moves per second.
        """
        return median(self.rates())

    def ratio_to(self, other: Result) -> float:
        """
        Return how many times faster this one is: the median over rounds of the ratio within a round.
        """
        return median(theirs / mine for mine, theirs in zip(self.seconds, other.seconds, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """
    One request that is timed in every round.
    """

    member: Member
    result: Result
    action: str
    arguments: Mapping[str, Any]

    def measure(self) -> float | None:
        """
        Run one trial; after a failure the contender stays out.
        """
        if self.result.problem is not None:
            return None
        try:
            return float(self.member.ask(self.action, **self.arguments)["seconds"])
        except KitUnavailable as error:
            self.result.problem = str(error)
            return None


def sequential_jobs(crew: Crew, moves: int) -> list[Job]:
    """
    Set every contender up and return its jobs; one that cannot take part keeps its reason.
    """
    jobs = []
    for member in crew.members:
        for key, label in member.labels.items():
            result = Result(key=key, label=label, units=moves)
            try:
                about = member.ask("setup", key=key)
                result.statements = about["statements"]
            except KitUnavailable as error:
                result.problem = str(error)
            jobs.append(Job(member=member, result=result, action="run", arguments={"key": key, "moves": moves}))
    return jobs


BULK_LABELS = {
    "bulk_raw": "raw set-based SQL, one statement",
    "bulk_ours": "ours, bulk_transition",
    "bulk_loop": "ours, a loop of single moves",
}


def bulk_jobs(crew: Crew, rows: int) -> list[Job]:
    """
    Return the set-wise jobs; the raw one runs on our tables, or on its own where ours are missing.
    """
    jobs: dict[str, Job] = {}
    for member in crew.members:
        for extra in member.extras:
            if extra in BULK_LABELS and extra not in jobs:
                result = Result(key=extra, label=BULK_LABELS[extra], units=rows)
                arguments = {"key": extra, "rows": rows}
                jobs[extra] = Job(member=member, result=result, action="extra", arguments=arguments)
    return [jobs[key] for key in BULK_LABELS if key in jobs]


def run_rounds(jobs: Iterable[Job], rounds: int, title: str) -> dict[str, Result]:
    """
    Run a discarded warm-up and the rounds, each in another order.
    """
    jobs = list(jobs)
    for number in range(rounds + 1):
        shuffled = random.Random(number).sample(jobs, len(jobs))  # noqa: S311 (an order, not a secret)
        name = f"round {number} of {rounds}" if number else "warm-up"
        print(f"{title}: {name} …", file=sys.stderr)
        for job in shuffled:
            seconds = job.measure()
            if number and seconds is not None:
                job.result.seconds.append(seconds)
    return {job.result.key: job.result for job in jobs}


def contention_notes(crew: Crew, threads: int, attempts: int) -> dict[str, Any]:
    """
    Let every kit that can fight for one row, once.
    """
    notes: dict[str, Any] = {}
    for member in crew.members:
        for extra in member.extras:
            if extra.startswith("contention"):
                name = f"{member.kit.name}.{extra}"
                try:
                    notes[name] = member.ask("extra", key=extra, threads=threads, attempts=attempts)
                except KitUnavailable as error:
                    notes[name] = {"problem": str(error)}
    return notes
