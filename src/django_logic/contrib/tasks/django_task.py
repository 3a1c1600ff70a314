"""
The task for `django.tasks`; needs Django 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.module_loading import import_string

from django_logic.contrib.tasks.work import work

__all__ = ["run_background"]


def task_queue() -> str:
    """
    Return the task queue the task is made for: Django's default one, or one the backend takes.
    """
    taken = import_string("django.tasks.task_backends")["default"].queues
    return "default" if not taken or "default" in taken else str(min(taken))


def run_background(queues: Sequence[str] | str | None = None, limit: int | None = None, using: str = "default") -> int:
    """
    Run the background rows that are due, of these queues or of all, at most so many; return how many ran.
    """
    return work(queues, limit, using)


task: Any = import_string("django.tasks.task")
run_background = task(run_background, queue_name=task_queue())
