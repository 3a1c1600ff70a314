"""
Becoming a child process: nothing of the parent's connections, signals or life is kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from django_logic.databases import close_databases, own_databases

__all__ = ["fork", "leave"]

logger = logging.getLogger("django-logic.worker")

PR_SET_PDEATHSIG = 1
STOPPING = (signal.SIGTERM, signal.SIGINT)


def fork(role: str, life: Callable[[], Any]) -> int:
    """
    Start a child that lives a function and leaves; return its pid.

    It dies with its parent, ignores SIGINT, which a terminal sends to all, and never returns here.
    """
    close_databases()
    flush()
    parent = os.getpid()
    gc.freeze()
    # A signal between the fork and the child's own handlers would reach the parent's in a copy of it, and be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
            gc.unfreeze()
    if pid:
        return pid
    status = 1
    try:
        die_with(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        own_databases()
        life()
        status = 0
    except SystemExit as wish:
        logger.critical("The %s (pid %d) was left by SystemExit(%r)", role, os.getpid(), wish.code, exc_info=True)
        status = wish.code if isinstance(wish.code, int) else 1
    except BaseException:
        logger.critical("The %s (pid %d) broke", role, os.getpid(), exc_info=True)
    leave(status)


def die_with(parent: int) -> None:
    """
    Ask the system to end this process with its parent; elsewhere than on Linux the idle loop looks after that.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def flush() -> None:
    """
    Write out what is buffered, which a fork would double and a hard exit would lose.
    """
    for handler in [*logging.root.handlers, *(h for name in logging.root.manager.loggerDict for h in handlers(name))]:
        with contextlib.suppress(Exception):
            handler.flush()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def handlers(name: str) -> list[logging.Handler]:
    """
    Return the handlers of one logger.
    """
    return list(getattr(logging.root.manager.loggerDict.get(name), "handlers", ()))


def leave(status: int) -> NoReturn:
    """
    End this process at once: what others registered for the end of the parent must not run here.
    """
    flush()
    with contextlib.suppress(Exception):
        close_databases()
    os._exit(status)
