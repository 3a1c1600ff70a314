"""
The subscriber whose calls are counted.
"""

from __future__ import annotations

from django_logic.outbox import subscribe
from django_logic.outbox.event import Event
from events_harness.received import note


@subscribe("*")
def receive(event: Event) -> None:
    """
    Note that an event has arrived: by its number, or by the order it is about.
    """
    note(event.payload.get("number", -1) if "number" in event.payload else int(event.key))
