"""
Public functions that need the models, callable from modules that are imported before the apps are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Model
from django.utils.module_loading import import_string

__all__ = ["in_flight", "retry_pending", "run_available"]


def in_flight(instance: Model, process_name: str = "process") -> bool:
    """
    Tell whether background work of the object is open and not stranded; for answers, since it may end right after.
    """
    found: bool = import_string("django_logic.background.gate.in_flight")(instance, process_name)
    return found


def run_available(queues: Iterable[str] | None = None, limit: int | None = None, *, using: str = "default") -> int:
    """
    Run what is due here and now, of these queues or of all, until nothing is or ``limit`` rows ran; return how many.

    Durable callbacks count too. Safe beside workers: the claim stays in the database.
    """
    count: int = import_string("django_logic.background.runner.run_available")(queues, limit, using=using)
    return count


def retry_pending(*, using: str = "default") -> int:
    """
    Run everything that is due in all queues once, here and now; return how many rows ran.
    """
    count: int = import_string("django_logic.background.runner.retry_pending")(using=using)
    return count
