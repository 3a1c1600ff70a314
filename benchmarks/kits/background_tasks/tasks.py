"""
The tasks.
"""

from __future__ import annotations

from django_tasks import task

from kits.background_jobs.moves import finish


@task(queue_name="bench")
def approve(key: int) -> None:
    """
    Move an order without further work.
    """
    finish(key, has_write=False)


@task(queue_name="bench")
def approve_with_write(key: int) -> None:
    """
    Move an order after one database write.
    """
    finish(key, has_write=True)
