"""
Where a call's trace comes from, and what continues it around an attempt: nothing, until somebody plugs in.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

__all__ = ["Tracer", "around", "current", "plug_in", "publishing", "unplug"]


class Tracer(Protocol):
    """
    Read the trace a call is made in, and link an attempt to it.
    """

    def current(self) -> str:
        """
        Return the W3C ``traceparent`` of this moment, empty for none.
        """

    def attempt(self, message: Any) -> AbstractContextManager[Any]:
        """
        Return what an attempt of a row runs within.
        """

    def publishing(self, events: Sequence[Any]) -> AbstractContextManager[Any]:
        """
        Return what the delivery of events, each with its ``traceparent``, runs within.
        """


_tracers: list[Tracer] = []


def plug_in(tracer: Tracer) -> None:
    """
    Use a tracer from now on; it takes the place of another one.
    """
    _tracers[:] = [tracer]


def unplug() -> None:
    """
    Use none.
    """
    _tracers.clear()


def current() -> str:
    """
    Return the trace a call is made in.
    """
    return _tracers[0].current()[:100] if _tracers else ""


def around(message: Any) -> AbstractContextManager[Any]:
    """
    Return what an attempt runs within.
    """
    return _tracers[0].attempt(message) if _tracers else nullcontext()


def publishing(events: Sequence[Any]) -> AbstractContextManager[Any]:
    """
    Return what the delivery of events runs within.
    """
    return _tracers[0].publishing(events) if _tracers else nullcontext()
