"""
Observing: one look at a database for everything that is collected at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.db import DatabaseError, close_old_connections
from opentelemetry.metrics import CallbackOptions, Meter, Observation

__all__ = ["NAME", "Instrument", "Reading", "observe"]

logger = logging.getLogger("django-logic.metrics")

NAME = "django_logic"
#: All that is observed in one collection shares a look that is not older than this; seconds.
FRESH = 1.0

Reading = Iterator[tuple[float, Mapping[str, str]]]
FiguresT = TypeVar("FiguresT")


@dataclass(frozen=True, slots=True)
class Instrument(Generic[FiguresT]):
    """
    Describe one thing that is observed, and what reads it from figures.
    """

    name: str
    unit: str
    words: str
    read: Callable[[FiguresT], Reading]
    #: Whether it only grows.
    is_counter: bool = False


class Figures(Generic[FiguresT]):
    """
    Take the figures of a database once for all instruments of a collection.
    """

    def __init__(self, alias: str, look: Callable[[str], FiguresT | None]) -> None:
        self.alias, self.look = alias, look
        self._lock = threading.Lock()
        self._taken = float("-inf")
        self._figures: FiguresT | None = None

    def now(self) -> FiguresT | None:
        """
        Return fresh figures; None where there are none, or the database can't be read.
        """
        with self._lock:
            if time.monotonic() - self._taken >= FRESH:
                close_old_connections()
                try:
                    self._figures = self.look(self.alias)
                except DatabaseError as problem:
                    logger.warning("The figures of %r can't be read: %s", self.alias, problem)
                    self._figures = None
                finally:
                    close_old_connections()
                self._taken = time.monotonic()
            return self._figures

    def observer(self, read: Callable[[FiguresT], Reading]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """
        Make the callback of one instrument.
        """

        def observed(_options: CallbackOptions) -> Iterable[Observation]:
            figures = self.now()
            for value, attributes in () if figures is None else read(figures):
                yield Observation(value, {"database": self.alias, **attributes})

        return observed


def observe(
    meter: Meter,
    aliases: Iterable[str],
    look: Callable[[str], FiguresT | None],
    instruments: Iterable[Instrument[FiguresT]],
) -> None:
    """
    Let a meter observe the figures of some databases.
    """
    sources = [Figures(alias, look) for alias in aliases]
    for entry in instruments:
        make = meter.create_observable_counter if entry.is_counter else meter.create_observable_gauge
        callbacks = [source.observer(entry.read) for source in sources]
        make(f"{NAME}.{entry.name}", callbacks, unit=entry.unit, description=entry.words)
