"""
Events: a message in the transaction of every move, and a relay that delivers it at least once, in order per object.
"""

from __future__ import annotations

from django_logic.outbox.builders import payload
from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import BrokerUnavailable, PayloadRefused, Undeliverable
from django_logic.outbox.inbox import inbox
from django_logic.outbox.subscribers import subscribe

__all__ = ["BrokerUnavailable", "Event", "PayloadRefused", "Undeliverable", "inbox", "payload", "subscribe"]
