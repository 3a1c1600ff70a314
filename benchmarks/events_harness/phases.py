"""
Run every outbox through every phase; within a phase in rounds, each in another order.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from background_harness.figures import Board
from harness.crew import Crew, KitUnavailable, Member

OURS, PREPARED = "ours", "ours_prepared"
COLD, HOT = "cold", "hot"
SUBSCRIBERS, REDIS = "subscribers", "redis"
SHALLOW, DEEP = "default", "deep"
SHAPES = ("fast", "effect", "spaced", "bulk")
CLIENT, SERVER = "client", "server"
MS = 1000.0
#: A warm-up tells how much an outbox delivers in a second; a trial is sized by it.
WARM_UP_EVENTS, FEWEST_EVENTS, MOST_EVENTS = 100, 100, 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    How long and how often each thing is measured. Units: seconds.
    """

    rounds: int
    shapes: Sequence[tuple[str, str]]
    moves: int
    spaced_moves: int
    bulk_rows: int
    bulk_rounds: int
    seconds: float
    drain_rounds: int
    drains: Sequence[tuple[str, int]]
    lag_moves: int
    steady_moves: int
    sent_rows: tuple[int, int]
    claim_rounds: int
    claims: int
    waiting_keys: int


QUICK = Plan(
    rounds=1,
    shapes=(("fast", CLIENT), ("fast", SERVER), ("effect", CLIENT), ("spaced", CLIENT), ("bulk", CLIENT)),
    moves=50,
    spaced_moves=15,
    bulk_rows=1000,
    bulk_rounds=1,
    seconds=0.2,
    drain_rounds=1,
    drains=((COLD, 1), (COLD, 3), (HOT, 1)),
    lag_moves=10,
    steady_moves=30,
    sent_rows=(100, 10_000),
    claim_rounds=1,
    claims=15,
    waiting_keys=5000,
)
FULL = Plan(
    rounds=5,
    shapes=(
        ("fast", CLIENT),
        ("fast", SERVER),
        ("effect", CLIENT),
        ("effect", SERVER),
        ("spaced", CLIENT),
        ("bulk", CLIENT),
    ),
    moves=200,
    spaced_moves=40,
    bulk_rows=10_000,
    bulk_rounds=3,
    seconds=0.6,
    drain_rounds=2,
    drains=((COLD, 1), (COLD, 3), (HOT, 1), (HOT, 3)),
    lag_moves=40,
    steady_moves=150,
    sent_rows=(100, 1_000_000),
    claim_rounds=2,
    claims=40,
    waiting_keys=100_000,
)
IDLE_PAUSES = (0.03, 0.4)
STEADY_PAUSE = 0.02


class Run:
    """
    The phases of one run; what they find stands on the board.
    """

    def __init__(self, crew: Crew, plan: Plan, redis_url: str | None) -> None:
        """
        Take the contenders that started.
        """
        self.plan, self.board, self.redis_url = plan, Board(), redis_url
        self.members: dict[str, Member] = {}
        self.profiles: dict[str, dict[str, Any]] = {}
        self.events: dict[str, int] = {}
        for member in crew.members:
            for key, profile in member.ask("extra", key="describe").items():
                self.members[key], self.profiles[key] = member, profile
                self.board.labels[key] = profile["label"]

    def costs(self) -> None:
        """
        Measure what a message adds to a move.
        """
        trials: list[tuple[str, str, str]] = []
        for key in self.having("costs"):
            shapes = self.plan.shapes if key == OURS else [("fast", CLIENT)]
            trials += [(key, *shape) for shape in shapes]
        for number in range(1, self.plan.rounds + 1):
            say(f"costs: round {number} of {self.plan.rounds}")
            for key, shape, by in shuffled(trials, number):
                if shape != "bulk" or number <= self.plan.bulk_rounds:
                    self.cost(key, shape, by, number)

    def cost(self, key: str, shape: str, by: str, number: int) -> None:
        """
        Run one trial of moves.
        """
        moves = {"bulk": self.plan.bulk_rows, "spaced": self.plan.spaced_moves}.get(shape, self.plan.moves)
        answer = self.ask(key, f"cost, {shape}, {by}", "cost", shape=shape, by=by, moves=moves, seed=number)
        for way, seconds in (answer or {}).items():
            self.board.figure(key, f"cost, {shape}, {by}, {way}").values.append(seconds / moves * MS)

    def drains(self) -> None:
        """
        Measure what relays deliver in a second.
        """
        trials: list[tuple[str, str, str, int]] = []
        for key in self.having("drains"):
            say(f"warm-up: {key}")
            answer = self.ask(key, "warm-up", "drain", events=WARM_UP_EVENTS, relays=1)
            if answer is None:
                continue
            pace = WARM_UP_EVENTS / answer["seconds"]
            self.events[key] = round(min(max(pace * self.plan.seconds, FEWEST_EVENTS), MOST_EVENTS))
            ends = [SUBSCRIBERS] + ([REDIS] if "streams" in self.profiles[key]["measures"] else [])
            drains = [drain for drain in self.plan.drains if drain[1] in self.profiles[key]["relays"]]
            trials += [(key, end, *drain) for end in ends for drain in drains]
        for number in range(1, self.plan.drain_rounds + 1):
            say(f"relays: round {number} of {self.plan.drain_rounds}")
            for trial in shuffled(trials, number):
                self.drain(*trial)

    def drain(self, key: str, end: str, keys: str, relays: int) -> None:
        """
        Run one trial of relays.
        """
        measure = drain_measure(end, keys, relays)
        if end == REDIS and self.redis_url is None:
            self.board.figure(key, measure).problem = "redis-server is not installed (apt-get install redis-server)"
            return
        arguments = {"stream_url": self.redis_url} if end == REDIS else {}
        events = self.events[key]
        answer = self.ask(key, measure, "drain", events=events, relays=relays, is_hot=keys == HOT, **arguments)
        if answer is not None:
            self.board.figure(key, measure).values.append(events / answer["seconds"])

    def lags(self) -> None:
        """
        Measure how soon a subscriber is called.
        """
        paces = (("idle", self.plan.lag_moves, *IDLE_PAUSES), ("steady", self.plan.steady_moves, *[STEADY_PAUSE] * 2))
        for key in self.having("lags"):
            for pace, moves, low, high in paces:
                say(f"lag, {pace}: {key}")
                answer = self.ask(key, f"lag, {pace}", "lag", moves=moves, low=low, high=high)
                if answer is not None:
                    self.board.figure(key, f"lag, {pace}").values.extend(answer["milliseconds"])

    def claims(self) -> None:
        """
        Measure claims where little and where much is delivered already, and where many keys wait.
        """
        for key in self.having("claims"):
            for alias, rows in zip((SHALLOW, DEEP), self.plan.sent_rows, strict=True):
                say(f"{rows:,} delivered rows: {key}")
                self.ask(key, "claims", "fill", alias=alias, rows=rows, state="sent")
            for number in range(1, self.plan.claim_rounds + 1):
                say(f"claims: round {number} of {self.plan.claim_rounds}")
                answer = self.ask(key, "claims", "claims", claims=self.plan.claims, pending=2000, seed=number)
                for alias, times in (answer or {"milliseconds": {}})["milliseconds"].items():
                    self.board.figure(key, f"claim, {alias}").values.extend(times)
                for alias in shuffled((SHALLOW, DEEP), number):
                    self.backlog(key, f"drain, {alias}", alias=alias, keeps="sent")
            say(f"{self.plan.waiting_keys:,} waiting keys: {key}")
            self.ask(key, "sweep", "fill", alias=SHALLOW, rows=self.plan.waiting_keys, state="pending")
            answer = self.ask(key, "sweep", "sweep", claims=self.plan.claims)
            if answer is not None:
                self.board.figure(key, "claim, waiting").values.extend(answer["milliseconds"])
            self.backlog(key, "drain, waiting", alias=SHALLOW, keeps="pending")

    def backlog(self, key: str, measure: str, **arguments: Any) -> None:
        """
        Let one relay deliver beside what is there.
        """
        events = self.events.get(key, FEWEST_EVENTS)
        answer = self.ask(key, measure, "drain", events=events, relays=1, **arguments)
        if answer is not None:
            self.board.figure(key, measure).values.append(events / answer["seconds"])

    def having(self, measure: str) -> list[str]:
        """
        Return who is measured so.
        """
        return [key for key, profile in self.profiles.items() if measure in profile["measures"]]

    def ask(self, key: str, measure: str, action: str, **arguments: Any) -> dict[str, Any] | None:
        """
        Ask a controller; after a failure the contender stays out of that measure.
        """
        figure = self.board.figure(key, measure)
        if figure.problem is not None:
            return None
        try:
            return self.members[key].ask("extra", key=action, contender=key, **arguments)
        except KitUnavailable as error:
            figure.problem = str(error)
            return None


def drain_measure(end: str, keys: str, relays: int) -> str:
    """
    Name the pace of relays.
    """
    return f"drain, {end}, {keys}, {relays}"


def shuffled(trials: Sequence[Any], number: int) -> list[Any]:
    """
    Return trials in the order of one round.
    """
    return random.Random(number).sample(list(trials), len(trials))  # noqa: S311 (an order, not a secret)


def say(text: str) -> None:
    """
    Tell who waits what is going on.
    """
    print(f"{text} …", file=sys.stderr)


#: What a phase is called on the command line.
PHASES: dict[str, Callable[[Run], None]] = {
    "costs": Run.costs,
    "drains": Run.drains,
    "lags": Run.lags,
    "claims": Run.claims,
}
