"""
The task for Celery.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.module_loading import import_string

from django_logic.contrib.tasks.work import work

__all__ = ["run_background_in_celery"]

shared_task: Any = import_string("celery.shared_task")


@shared_task(name="django_logic.run_background")  # type: ignore[untyped-decorator]
def run_background_in_celery(
    queues: Sequence[str] | str | None = None, limit: int | None = None, using: str = "default"
) -> int:
    """
    Run the background rows that are due, of these queues or of all, at most so many; return how many ran.
    """
    return work(queues, limit, using)
