"""
The admin of events: what is told, how far its delivery is, and one thing to do to what is dead.

Nothing is edited here: what was told stays as it is, and deliveries are the relay's to write.
"""

from __future__ import annotations

from django_logic.outbox.admin.deliveries import DeliveryAdmin
from django_logic.outbox.admin.messages import MessageAdmin

__all__ = ["DeliveryAdmin", "MessageAdmin"]
