"""
Putting dead messages back, in their order.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q

from django_logic.clock import FromNow
from django_logic.outbox.models import DeliveryState, OutboxDelivery
from django_logic.outbox.relay.wake import wake

__all__ = ["replay"]


def replay(
    pks: Iterable[int] | None = None, *, topic: str = "", destination: str = "", key: str = "", using: str = "default"
) -> int:
    """
    Make dead deliveries pending again, with all their attempts; return how many. Without arguments all of them.

    They are delivered in the order they were written. What passed them meanwhile, where the topic lets it, was earlier.
    """
    wanted = Q(state=DeliveryState.DEAD)
    if pks is not None:
        wanted &= Q(pk__in=list(pks))
    for name, value in (("topic", topic), ("destination", destination), ("key", key)):
        if value:
            wanted &= Q(**{name: value})
    count = (
        OutboxDelivery.objects.using(using)
        .filter(wanted)
        .update(state=DeliveryState.PENDING, is_open=True, attempts=0, next_attempt_at=FromNow(), lease_token=None)
    )
    if count:
        wake(using)
    return count
