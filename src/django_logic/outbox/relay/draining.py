"""
Delivering everything that is due, inline.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from django.conf import settings
from django.db import connections, router

from django_logic.outbox import destinations
from django_logic.outbox.models import OutboxDelivery
from django_logic.outbox.publishers import Fate
from django_logic.outbox.relay.claim import BEGINNING, claim
from django_logic.outbox.relay.delivering import deliver

__all__ = ["aliases", "drain"]


def aliases() -> list[str]:
    """
    Return the databases that may hold events.
    """
    allowed = [alias for alias in settings.DATABASES if router.allow_migrate_model(alias, OutboxDelivery)]
    table = OutboxDelivery._meta.db_table
    return [alias for alias in allowed if table in connections[alias].introspection.table_names()]


def drain(using: str | None = None, *, only: Sequence[str] | None = None) -> int:
    """
    Publish everything that is due, of one database or all, to every destination or some; return how many arrived.

    A destination that takes nothing is left for now. Transaction: within an open one its locks are held meanwhile, and
    what was published stays so when it is rolled back; meant for tests and scripts.
    """
    names = destinations.names() if only is None else list(only)
    return sum(drain_one(alias, name) for alias in ([using] if using else aliases()) for name in names)


def drain_one(alias: str, name: str) -> int:
    """
    Publish what is due of one destination.
    """
    count, after = 0, BEGINNING
    with closing(destinations.make_publisher(name)) as publisher:
        while True:
            claimed = claim(alias, name, after=after)
            if not claimed and after == BEGINNING:
                return count
            after = claimed.end
            if claimed:
                delivered = deliver(alias, claimed, publisher)
                count += delivered.fates[Fate.SENT]
                if delivered.outage:
                    return count
