"""
Change what a worker of a test can't be told by its options: module constants, what happens at boot, its process.

An alteration is settings, so it reaches every process the worker forks. A constant that does not exist any more
fails the worker at boot.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from logging.handlers import MemoryHandler
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.utils.module_loading import import_string

from django_logic import Process
from django_logic.background.testpoints import pause

SETTING = "WORKER_ALTERATIONS"
GATE = "WORKER_GATE"
LEASE = "django_logic.background.claim.LEASE"
BOOT_LIMIT = "django_logic.background.worker.children.BOOT_LIMIT"
UPKEEP_EVERY = "django_logic.background.worker.supervisor.UPKEEP_EVERY"
UPKEEP_LIMIT = "django_logic.background.worker.supervisor.UPKEEP_LIMIT"
GROWN_UP = "django_logic.background.worker.child.GROWN_UP"
LOOK_EVERY = "django_logic.background.worker.child.LOOK_EVERY"
BEAT_EVERY = "django_logic.background.worker.clerk.BEAT_EVERY"
PROVE_EVERY = "django_logic.listener.PROVE_EVERY"
ANSWER_WITHIN = "django_logic.listener.ANSWER_WITHIN"
LONGEST_PAUSE = "django_logic.listener.LONGEST_PAUSE"
#: A lease that passes within a test; it must still outlast the moment from a claim to its row lock.
SHORT_LEASE = {LEASE: 1.0}
#: Named, since what it imports can't be imported before all apps are there.
SWAP = "tests.worker.fault_process.swap_process"


class Alterations(AppConfig):
    """
    Alter the process that loads it, after all other apps.
    """

    name = "tests.worker"
    label = "worker_alterations"

    def ready(self) -> None:
        """
        Bind, set and do what the settings ask for.
        """
        wanted: Mapping[str, Any] = getattr(settings, SETTING)
        if wanted["process"]:
            import_string(SWAP)(import_string(wanted["process"]))
        for name, value in wanted["constants"].items():
            module_name, _, constant = name.rpartition(".")
            module = importlib.import_module(module_name)
            if not hasattr(module, constant):
                raise AttributeError(f"{name} is gone: the test that alters it proves nothing any more.")
            setattr(module, constant, value)
        for name in wanted["at_boot"]:
            import_string(name)()


def altered(
    constants: Mapping[str, Any] | None = None,
    *,
    at_boot: Iterable[str] = (),
    process: type[Process] | None = None,
    **others: Any,
) -> dict[str, Any]:
    """
    Return the settings of a worker that is altered so, to be given to `harness.worker`.

    ``at_boot`` names functions of this module; ``others`` are settings of Django.
    """
    return {
        "INSTALLED_APPS": [*settings.INSTALLED_APPS, f"{__name__}.{Alterations.__name__}"],
        SETTING: {
            "constants": dict(constants or {}),
            "at_boot": [f"{__name__}.{name}" for name in at_boot],
            "process": f"{process.__module__}.{process.__qualname__}" if process else "",
        },
        **others,
    }


def start_a_thread_that_logs() -> None:
    """
    Keep a thread busy that holds a logging handler's lock nearly all the time.
    """
    noise = logging.getLogger("noise")
    noise.propagate = False
    noise.addHandler(logging.StreamHandler(open(os.devnull, "w")))  # noqa: SIM115 (it lives as long as the process)

    def log() -> None:
        while True:
            noise.error("noise %s", "x" * 100)

    threading.Thread(target=log, name="noise", daemon=True).start()


def look_late() -> None:
    """
    Hold a child at the gate of the setting WORKER_GATE before it asks when the next row comes due.
    """
    child: Any = importlib.import_module("django_logic.background.worker.child")
    next_due = child.next_due

    def ask_late(*arguments: Any) -> Any:
        pause(getattr(settings, GATE), "look_late")
        return next_due(*arguments)

    child.next_due = ask_late


def buffer_logs() -> None:
    """
    Keep log lines in memory until somebody flushes, as handlers do that send them over the network.
    """
    to_terminal = logging.StreamHandler()
    root = logging.getLogger()
    root.addHandler(MemoryHandler(10_000, flushLevel=logging.CRITICAL, target=to_terminal))
    root.setLevel(logging.INFO)


def hang_the_first_child() -> None:
    """
    Make the first attempt child hang as it is forked, as on a lock that some thread held at that moment.
    """
    _meet_the_first_child(lambda: time.sleep(3600))


def hold_the_first_child() -> None:
    """
    Hold the first attempt child, as it is forked, at the gate of the setting WORKER_GATE.
    """
    _meet_the_first_child(lambda: pause(getattr(settings, GATE), "forked"))


def _meet_the_first_child(deed: Callable[[], None]) -> None:
    forks = 0

    def count() -> None:
        nonlocal forks
        forks += 1

    def meet() -> None:
        # The clerk is the first to be forked.
        if forks == 2:
            deed()

    os.register_at_fork(before=count, after_in_child=meet)


def run_out_of_processes() -> None:
    """
    Let the system refuse the forks after the first two for a while, as it does at a limit of processes.
    """
    real, tries = os.fork, iter(range(10_000))

    def fork() -> int:
        if 2 <= next(tries) < 5:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return real()

    os.fork = fork
