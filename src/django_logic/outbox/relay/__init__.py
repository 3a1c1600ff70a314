"""
The relay: it claims, publishes and marks, any number side by side, in order per object.

Example::

    from django_logic.outbox import relay

    relay.drain()                           # deliver everything due, here and now
    relay.replay(topic="order.fulfilled")   # put dead messages back
"""

from __future__ import annotations

from django_logic.outbox.relay.draining import drain
from django_logic.outbox.relay.purging import purge
from django_logic.outbox.relay.replaying import replay

__all__ = ["drain", "purge", "replay"]
