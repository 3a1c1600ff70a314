"""
What every task of a foreign queue does.
"""

from __future__ import annotations

from collections.abc import Iterable

from django_logic.background import run_available

__all__ = ["work"]


def work(queues: Iterable[str] | str | None, limit: int | None, using: str) -> int:
    """
    Run what is due, and return how many rows ran; a text names queues parted by commas.
    """
    if isinstance(queues, str):
        queues = [name.strip() for name in queues.split(",") if name.strip()]
    return run_available(queues, limit, using=using)
