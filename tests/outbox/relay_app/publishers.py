"""
A destination that a test opens and closes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from django_logic.outbox import BrokerUnavailable, Event
from django_logic.outbox.publishers import Result, sent
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
