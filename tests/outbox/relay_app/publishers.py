"""
A destination that a test opens and closes, and one that it holds up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.utils.module_loading import import_string

from django_logic.background.testpoints import pause
from django_logic.outbox import BrokerUnavailable, Event
from django_logic.outbox.publishers import Publisher, Result, sent
from tests.outbox.seen import note


class Door:
    """
    Write events down while the file at this path is there; without it nothing arrives.
    """

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path = name, Path(path)

    def publish(self, events: Sequence[Event]) -> Sequence[Result]:
        """
        Deliver, or be away.
        """
        if not self.path.exists():
            self.path.with_name(f"{self.path.name}.tried").touch()
            raise BrokerUnavailable("the door is closed")
        for event in events:
            note(event, self.name)
        return [sent() for _event in events]

    def close(self) -> None:
        """
        Let go of nothing.
        """


class Held:
    """
    Hand events to another publisher; tell what became of them once a gate is open, where a reason asks to wait there.
    """

    def __init__(self, backend: str, options: Mapping[str, Any]) -> None:
        self.publisher: Publisher = import_string(backend)(**options)

    def publish(self, events: Sequence[Event]) -> Sequence[Result]:
        """
        Deliver, then wait.
        """
        results = self.publisher.publish(events)
        for event in events:
            deed, _, argument = str(event.payload.get("reason", "")).partition(" ")
            if deed == "wait":
                pause(argument)
        return results

    def close(self) -> None:
        """
        Close the other.
        """
        self.publisher.close()
