"""
How long a failed attempt waits for the next one.
"""

from __future__ import annotations

from typing import Any

from django_logic import conf
from django_logic.backoff import Backoff

__all__ = ["Backoff", "pause_after", "retry_of"]


def retry_of(declaration: Any) -> Backoff | None:
    """
    Return the pauses a declaration asks for; None for none, or where there is no declaration any more.
    """
    found: Backoff | None = getattr(declaration, "retry", None)
    return found


def pause_after(retry: Backoff | None, errors: int) -> float:
    """
    Return the pause a declaration asks for, else the project's; seconds.
    """
    return retry.pause(errors) if retry is not None else conf.retry_minutes() * 60
