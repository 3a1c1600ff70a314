"""
Events: a message in the transaction of every move, and a relay that delivers it at least once, in order per object.
"""

from __future__ import annotations

from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import BrokerUnavailable, PayloadRefused, Undeliverable

__all__ = ["BrokerUnavailable", "Event", "PayloadRefused", "Undeliverable"]
