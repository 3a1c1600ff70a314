"""
Hooks that work, wait, fail and crash, each written down in the ledger.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from django.db import connection

from django_logic.background import PermanentFailure, Snooze
from django_logic.background.testpoints import pause
from tests.worker_app.ledger import ledger, noted
from tests.worker_app.models import Effect

MEBIBYTE = 1024 * 1024
KEPT: list[bytearray] = []
#: Ways for a process to end in the middle of a hook.
CRASHES: dict[str, Callable[[], None]] = {
    "exit": lambda: os._exit(7),
    "exit_0": lambda: os._exit(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "kill_group": lambda: os.killpg(0, signal.SIGKILL),
    "abort": os.abort,
}


class Boom(Exception):
    """
    Stand for whatever goes wrong in a hook.
    """


def effect(action: str) -> Callable[..., Any]:
    """
    Make the side effect that writes an `Effect` for an action.
    """

    @noted
    def write_effect(instance: Any, transition_id: Any, **keywords: Any) -> None:
        Effect.objects.using(instance._state.db).create(
            job_id=instance.pk, transition_id=transition_id, action=action, pid=os.getpid()
        )

    return write_effect


@noted
def waiting(instance: Any, gate: str, **keywords: Any) -> None:
    """
    Wait at the gate at this path.
    """
    pause(gate, "waiting")


@noted
def waiting_in_the_database(instance: Any, key: int, **keywords: Any) -> None:
    """
    Wait for an advisory lock of PostgreSQL, inside the attempt's session.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [key])


@noted
def failing(instance: Any, transition_id: Any, times: int = 1, text: str = "boom", **keywords: Any) -> None:
    """
    Fail so many times, then succeed.
    """
    if is_among_first(times, "failing", transition_id):
        raise Boom(text)


@noted
def crashing(instance: Any, transition_id: Any, how: str = "exit", times: int = 1, **keywords: Any) -> None:
    """
    End the process so many times, then succeed.
    """
    if is_among_first(times, "crashing", transition_id):
        CRASHES[how]()


@noted
def exiting(instance: Any, transition_id: Any, status: int = 3, times: int = 1, **keywords: Any) -> None:
    """
    Raise SystemExit so many times.
    """
    if is_among_first(times, "exiting", transition_id):
        raise SystemExit(status)


@noted
def refusing(instance: Any, **keywords: Any) -> None:
    """
    Fail for good.
    """
    raise PermanentFailure("the customs refused it")


@noted
def snoozing(instance: Any, transition_id: Any, seconds: float = 0.2, times: int = 1, **keywords: Any) -> None:
    """
    Ask for a later attempt so many times.
    """
    if is_among_first(times, "snoozing", transition_id):
        raise Snooze(seconds)


@noted
def eating(instance: Any, mebibytes: int = 64, is_kept: bool = False, **keywords: Any) -> None:
    """
    Take memory and touch every page, for good or until the hook returns.
    """
    taken = bytearray(mebibytes * MEBIBYTE)
    taken[::4096] = b"x" * len(taken[::4096])
    if is_kept:
        KEPT.append(taken)


@noted
def spawning(instance: Any, **keywords: Any) -> None:
    """
    Run a program and insist on its exit status, which a reaper elsewhere in the process would steal.
    """
    ended = subprocess.run([sys.executable, "-c", "raise SystemExit(5)"], check=False)
    if ended.returncode != 5:
        raise Boom(f"the program's exit status was {ended.returncode}")


@noted
def spinning(instance: Any, **keywords: Any) -> None:
    """
    Keep the interpreter busy without end.
    """
    while True:
        pass


@noted
def threading_on(instance: Any, **keywords: Any) -> None:
    """
    Leave a thread behind that never ends.
    """
    threading.Thread(target=threading.Event().wait, daemon=False).start()


@noted
def told(instance: Any, **keywords: Any) -> None:
    """
    Be told of the success.
    """


@noted
def warned(instance: Any, exception: BaseException, **keywords: Any) -> None:
    """
    Be told of the failure.
    """


def is_among_first(times: int, hook: str, transition_id: Any) -> bool:
    """
    Tell whether a hook has begun for this transition no more often than so.
    """
    # The ledger already holds the line of the run that asks.
    return ledger().count(hook, transition_id=transition_id) <= times
