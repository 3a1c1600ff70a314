"""
Ask for background work, and tell whether it is done.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction

from tests.worker.looks import open_rows
from tests.worker_app.models import Job

__all__ = ["ask", "ask_at_once", "is_all_done"]


def ask(action: str, **keywords: Any) -> Job:
    """
    Make a job and ask for an action on it.
    """
    job = Job.objects.create()
    getattr(job.process, action)(**keywords)
    return job


def ask_at_once(count: int, action: str = "quick", **keywords: Any) -> list[Job]:
    """
    Ask for an action on so many new jobs in one transaction, which sends one notification.
    """
    with transaction.atomic():
        return [ask(action, **keywords) for _ in range(count)]


def is_all_done() -> bool:
    """
    Tell whether no row is open any more, durable ones included.
    """
    return not open_rows()
