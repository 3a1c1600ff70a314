"""
Processes of a job for faults that `tests.worker_app.process` does not know.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.utils import timezone, translation

from django_logic import Process, ProcessManager
from tests.worker_app import hooks
from tests.worker_app.ledger import ledger, noted
from tests.worker_app.models import Job
from tests.worker_app.process import JobProcess, work

#: Seconds after which a `query_long` is killed.
SHORT_LIMIT = 0.5
TRACE: ContextVar[str] = ContextVar("trace", default="")


@noted
def leaving_traces(instance: Any, **keywords: Any) -> None:
    """
    Leave everything behind that a hook can leave in its process without malice.
    """
    TRACE.set("left")
    translation.activate("de")
    timezone.activate("Asia/Tokyo")


@noted
def finding_no_trace(instance: Any, **keywords: Any) -> None:
    """
    Fail where an earlier attempt left something.
    """
    found = (TRACE.get(), translation.get_language(), timezone.get_current_timezone_name())
    if found != ("", "en", "UTC"):
        raise hooks.Boom(f"found {found}")


@noted
def orphaning(instance: Any, **keywords: Any) -> None:
    """
    Leave a process behind whose parent has ended, and which ends soon.
    """
    subprocess.run(["/bin/sh", "-c", "sleep 0.2 &"], check=True)


@noted
def hanging_at_first(instance: Any, **keywords: Any) -> None:
    """
    Never return the first time.
    """
    if ledger().count("hanging_at_first") == 1:
        time.sleep(3600)


class FaultProcess(Process):
    """
    Hang in the database, leave traces and orphans, prepare.
    """

    process_name = "process"
    transitions = [
        work("quick"),
        work("wait", hooks.waiting),
        work("overrun", hooks.waiting, timeout=SHORT_LIMIT),
        work("query_long", hooks.waiting_in_the_database, timeout=SHORT_LIMIT),
        work("leave_traces", leaving_traces),
        work("find_no_trace", finding_no_trace, max_errors=1),
        work("orphan", orphaning),
        work("prepare_long", prepare=[hooks.waiting]),
    ]


class BestEffortProcess(Process):
    """
    Run callbacks in the process that ends the row, with a failure callback that hangs once.
    """

    process_name = "process"
    durable_callbacks = False
    transitions = [
        work("overrun", hooks.waiting, timeout=SHORT_LIMIT),
        work("hang_when_failed", hooks.failing, failure_callbacks=[hanging_at_first]),
    ]


def swap_process(process: type[Process], before: type[Process] = JobProcess) -> None:
    """
    Bind another process in the place of the one that jobs have.
    """
    ProcessManager.unbind_model_process(Job, before, "state")
    ProcessManager.bind_model_process(Job, process, "state")


@contextmanager
def jobs_have(process: type[Process]) -> Iterator[None]:
    """
    Bind another process to jobs in this process, until the block ends.
    """
    swap_process(process)
    try:
        yield
    finally:
        swap_process(JobProcess, before=process)
