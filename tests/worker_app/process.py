"""
One background transition for each thing that can happen to an attempt.
"""

from __future__ import annotations

from typing import Any

from django_logic import Process, Transition
from django_logic.background import BackgroundAction, BackgroundTransition, Backoff
from tests.worker_app import hooks

#: The queue of nearly all, so that a test's worker serves nothing else.
QUEUE = "work"
SIDE_QUEUE = "side"
MAX_ERRORS = 3
AT_ONCE = Backoff(first=0, factor=1, limit=0, jitter=0)
IN_TEN_MINUTES = Backoff(first=600, factor=1, limit=600, jitter=0)
#: Seconds after which an `overrun` is killed.
TIME_LIMIT = 1.0
SOURCES = ["new", "done", "failed"]


def work(action: str, *side_effects: Any, **options: Any) -> BackgroundTransition:
    """
    Declare a transition to ``done`` that writes an effect before whatever else it does.
    """
    defaults = {
        "in_progress_state": "working",
        "failed_state": "failed",
        "queue": QUEUE,
        "max_errors": MAX_ERRORS,
        "retry": AT_ONCE,
        "callbacks": [hooks.told],
        "failure_callbacks": [hooks.warned],
    }
    effects = [hooks.effect(action), *side_effects]
    return BackgroundTransition(action, sources=SOURCES, target="done", side_effects=effects, **{**defaults, **options})


class JobProcess(Process):
    """
    The process of a job: ``job.process.fail(times=2)`` fails twice and then succeeds.
    """

    process_name = "process"
    transitions = [
        work("quick"),
        work("wait", hooks.waiting),
        work("wait_in_database", hooks.waiting_in_the_database),
        work("fail", hooks.failing),
        work("fail_and_pause", hooks.failing, retry=IN_TEN_MINUTES),
        work("refuse", hooks.refusing),
        work("snooze", hooks.snoozing),
        work("crash", hooks.crashing),
        work("exit", hooks.exiting),
        work("eat", hooks.eating),
        work("spawn", hooks.spawning),
        work("leave_a_thread", hooks.threading_on),
        work("overrun", hooks.waiting, timeout=TIME_LIMIT),
        work("spin", hooks.spinning, timeout=TIME_LIMIT),
        work("wait_after", callbacks=[hooks.waiting, hooks.told]),
        work("fail_after", callbacks=[hooks.failing, hooks.told]),
        work("crash_after", callbacks=[hooks.crashing, hooks.told]),
        work("follow", next_transition="quick"),
        work("start_over", next_transition="mend"),
        work("aside", queue=SIDE_QUEUE),
        work("urgent", priority=-10),
        BackgroundAction(
            "act",
            sources=SOURCES,
            queue=QUEUE,
            max_errors=MAX_ERRORS,
            retry=AT_ONCE,
            side_effects=[hooks.effect("act")],
            callbacks=[hooks.told],
        ),
        Transition("mend", sources=[*SOURCES, "working"], target="new"),
    ]
