"""
A fleet of workers, a monkey that kills what belongs to them, and jobs that are asked for meanwhile.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any

from django_logic import Process, Transition
from django_logic.background import BackgroundAction, BackgroundTransition
from django_logic.exceptions import TransitionNotAllowed
from tests.worker import processes
from tests.worker.harness import Worker, sql
from tests.worker_app import hooks
from tests.worker_app.ledger import noted
from tests.worker_app.models import Job
from tests.worker_app.process import AT_ONCE, QUEUE, SOURCES, work

#: So many that no row is spent by the monkey alone.
MANY_ERRORS = 25
TIME_LIMIT = 0.6
LOG_TAIL = 2000
#: What is killed how often, as weights.
DEEDS = {"child": 9, "session": 9, "parent": 2, "whole worker": 2}


@noted
def toiling(instance: Any, toil: float = 0.03, **keywords: Any) -> None:
    """
    Take some time, so that the monkey finds work to disturb.
    """
    time.sleep(toil)


@noted
def informed(instance: Any, **keywords: Any) -> None:
    """
    Be told, slowly.
    """
    time.sleep(0.02)


@noted
def stalling(instance: Any, transition_id: Any, **keywords: Any) -> None:
    """
    Take longer than the limit, once.
    """
    if hooks.is_among_first(1, "stalling", transition_id):
        time.sleep(TIME_LIMIT * 5)


def task(action: str, *side_effects: Any, **options: Any) -> BackgroundTransition:
    """
    Declare work that takes time and is allowed many attempts.
    """
    defaults = {"max_errors": MANY_ERRORS, "callbacks": [hooks.told, informed]}
    defaults["failure_callbacks"] = [hooks.warned, informed]
    return work(action, toiling, *side_effects, **{**defaults, **options})


class CampaignProcess(Process):
    """
    One transition for each way in which work goes, or goes wrong by itself.
    """

    process_name = "process"
    transitions = [
        task("quick"),
        task("follow", next_transition="quick"),
        task("start_over", next_transition="mend"),
        task("fail", hooks.failing),
        task("refuse", hooks.refusing),
        task("snooze", hooks.snoozing),
        task("crash", hooks.crashing),
        task("stall", stalling, timeout=TIME_LIMIT),
        task("fail_after", callbacks=[hooks.failing, informed]),
        task("crash_after", callbacks=[hooks.crashing, informed]),
        BackgroundAction(
            "act",
            sources=SOURCES,
            queue=QUEUE,
            max_errors=MANY_ERRORS,
            retry=AT_ONCE,
            side_effects=[hooks.effect("act"), toiling],
            callbacks=[informed],
        ),
        Transition("mend", sources=SOURCES, target="new"),
    ]


#: What is asked for, and with which keywords.
KINDS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    *(("quick", {}), ("follow", {}), ("start_over", {}), ("act", {}), ("refuse", {}), ("snooze", {})),
    *(("fail", {"times": 2}), ("fail", {"times": 99}), ("fail_after", {}), ("stall", {})),
    *(("crash", {"how": "kill"}), ("crash", {"how": "exit_0"}), ("crash_after", {"how": "abort"})),
)


class Fleet:
    """
    Keep a number of workers running: one that was killed is replaced, as a service manager does.
    """

    def __init__(self, count: int, start: Callable[[], AbstractContextManager[Worker]]) -> None:
        self._start = start
        self._stacks = [ExitStack() for _ in range(count)]
        self.workers: list[Worker] = []
        #: What the dead ones have printed.
        self.logs: list[str] = []

    def __enter__(self) -> Fleet:
        self.workers = [stack.enter_context(self._start()) for stack in self._stacks]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for log in self.logs:
                error.add_note(f"The log of a worker that was killed:\n{log[-LOG_TAIL:]}")
        for stack in self._stacks:
            stack.__exit__(kind, error, trace)

    def ready(self) -> list[int]:
        """
        List the places of the workers that have begun to work.

        Raises: AssertionError when one has ended by itself.
        """
        for each in self.workers:
            assert each.is_running(), f"A worker ended by itself:\n{each.log}"
        return [place for place, each in enumerate(self.workers) if each.health_file.exists()]

    def replace(self, place: int) -> None:
        """
        Clear away what is left of a worker and start another one.
        """
        self.logs.append(self.workers[place].log)
        self._stacks[place].close()
        self.workers[place] = self._stacks[place].enter_context(self._start())


class Monkey:
    """
    Kill something that belongs to a worker, chosen by chance.
    """

    def __init__(self, chance: random.Random, fleet: Fleet) -> None:
        self.chance, self.fleet = chance, fleet
        self.deeds: Counter[str] = Counter()

    def strike(self) -> None:
        """
        Do one thing to one of the workers that work; nothing where none does.
        """
        deed = self.chance.choices(list(DEEDS), list(DEEDS.values()))[0]
        ready = self.fleet.ready()
        if not ready:
            return
        place = self.chance.choice(ready)
        victim = self.fleet.workers[place]
        if deed == "parent":
            victim.kill9()
            self.fleet.replace(place)
        elif deed == "whole worker":
            victim.kill9_group()
            self.fleet.replace(place)
        elif deed == "child" and (children := victim.children()):
            processes.send(self.chance.choice(children), signal.SIGKILL)
        elif deed == "session" and (sessions := victim.sessions()):
            sql("SELECT pg_terminate_backend(%s)", self.chance.choice(sessions))
        else:
            return
        self.deeds[deed] += 1


def ask_for_something(chance: random.Random, jobs: Sequence[Job]) -> int:
    """
    Ask one job for one kind of work; return how many calls were accepted: one, or none while the job is busy.
    """
    action, keywords = chance.choice(KINDS)
    try:
        getattr(chance.choice(jobs).process, action)(**keywords)
    except TransitionNotAllowed:
        return 0
    return 1
