"""
Background work: a call saves a row and the busy state; workers claim the row and run it, whatever dies.
"""

from __future__ import annotations

from django_logic.background.entry import in_flight, retry_pending, run_available
from django_logic.background.exceptions import Cancelled, KwargsSerializationError, PermanentFailure, Snooze
from django_logic.background.retry import Backoff
from django_logic.background.transitions import BackgroundAction, BackgroundTransition
from django_logic.conf import sync_execution

__all__ = [
    "BackgroundAction",
    "BackgroundTransition",
    "Backoff",
    "Cancelled",
    "KwargsSerializationError",
    "PermanentFailure",
    "Snooze",
    "in_flight",
    "retry_pending",
    "run_available",
    "sync_execution",
]
