"""
What a hook raises to steer a worker, and what stands for a failure on its way there and back.
"""

from __future__ import annotations

from typing import Any

from django_logic.exceptions import DjangoLogicException
from django_logic.numbers import duration

__all__ = [
    "AttemptFailed",
    "Cancelled",
    "KwargsSerializationError",
    "PermanentFailure",
    "Snooze",
    "VanishedReference",
    "words_of",
]


def words_of(error: BaseException) -> str:
    """
    Return what an exception says, with its class; a stand-in's words name theirs already.
    """
    try:
        text = str(error)
    except Exception as broken:  # whatever a foreign __str__ does
        text = f"(its words can't be read: {type(broken).__name__})"
    return text if isinstance(error, AttemptFailed) else f"{type(error).__name__}: {text}"


class PermanentFailure(Exception):
    """
    Say that trying again can't help: the worker takes the failure path on this attempt.
    """


class VanishedReference(PermanentFailure):
    """
    A model instance among the keywords is gone.
    """


class Cancelled(PermanentFailure):
    """
    Somebody cancelled the work; what ``failure_callbacks`` get as ``exception``.
    """

    actor_label: str = ""
    reason: str = ""


class Snooze(Exception):
    """
    Put the work back for a while; the attempt does not count.

    Units: seconds. Raised by a hook; what it wrote in this attempt is undone. The reason is noted on the row.
    """

    def __init__(self, seconds: Any, reason: str = "") -> None:
        if duration()(seconds):
            raise ValueError(f"Snooze takes a number of seconds from 0 to a hundred years; found {seconds!r}.")
        super().__init__(seconds, reason)
        self.seconds = float(seconds)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.seconds:g} s{f': {self.reason}' if self.reason else ''}"


class KwargsSerializationError(DjangoLogicException, TypeError):
    """
    A keyword can't be stored for a worker; ``path`` says where in the structure.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class AttemptFailed(Exception):
    """
    Stand for what failed an attempt where the exception itself could not be kept; its text says both.
    """
