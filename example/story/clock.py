"""
The story's clock: real moves, at a time of our choosing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from unittest import mock

from django.utils import timezone

__all__ = ["at", "last_monday"]


@contextmanager
def at(moment: datetime) -> Iterator[None]:
    """
    Make Django's clock stand at a moment; the library and ``auto_now`` fields read no other.
    """
    with mock.patch.object(timezone, "now", return_value=moment):
        yield


def last_monday() -> datetime:
    """
    Return midnight of last week's Monday: the whole of that week is over.
    """
    today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=today.weekday() + 7)
