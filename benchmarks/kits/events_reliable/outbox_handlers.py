"""
The handler whose calls are counted.
"""

from __future__ import annotations

from reliable_outbox import Envelope, handler

from events_harness.received import note


@handler("order.*")
def receive(envelope: Envelope) -> None:
    """
    Note that an event has arrived.
    """
    note(envelope.payload["number"])
