"""
Removing what everybody has got, in batches that hold no lock for long.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import models, transaction
from django.db.models import Exists, OuterRef, Q

from django_logic.clock import FromNow
from django_logic.outbox import options
from django_logic.outbox.models import DeliveryState, InboxEntry, OutboxDelivery, OutboxMessage

__all__ = ["BATCH", "forget_taken", "keep_seconds", "purge", "purge_batch"]

#: How many rows one transaction deletes at most.
BATCH = 1000


def purge(using: str = "default", days: float | None = None) -> int:
    """
    Delete messages that were sent everywhere, and what consumers noted, longer ago than so many days; return how many.

    Pending and dead ones stay whatever their age. Transaction: one for each batch.
    """
    age = keep_seconds(days)
    count = 0
    while found := purge_batch(using, age):
        count += found
    while forget_taken(using, age):
        pass
    return count


def keep_seconds(days: float | None = None) -> float:
    """
    Return for how long messages are kept, in seconds.
    """
    return timedelta(days=options.keep_days() if days is None else days).total_seconds()


def purge_batch(alias: str, age: float) -> int:
    """
    Delete one batch of messages; return how many rows went, 0 when nothing is left.

    With a relay of ours a message goes once all its deliveries are sent for so long; without one, by its age.
    """
    old = FromNow(-age)
    with transaction.atomic(using=alias):
        deliveries = OutboxDelivery.objects.using(alias)
        # The first rows only: to look for old ones behind them would read all that is kept, each minute.
        first = deliveries.filter(is_open=False, state=DeliveryState.SENT).order_by("id")
        ages = first.annotate(is_old=Q(sent_at__lt=old)).values_list("id", "message_id", "is_old")[:BATCH]
        sent = [(pk, message) for pk, message, is_old in ages if is_old]
        gone = raw(deliveries.filter(pk__in=[pk for pk, _message in sent]))
        messages = OutboxMessage.objects.using(alias)
        left = Exists(deliveries.filter(message_id=OuterRef("pk")))
        if sent:
            return gone + raw(messages.filter(pk__in=[message for _pk, message in sent]).filter(~left))
        orphans = (
            messages.filter(occurred_at__lt=old).filter(~left).order_by("occurred_at").values_list("pk", flat=True)
        )
        return raw(messages.filter(pk__in=list(orphans[:BATCH])))


def forget_taken(alias: str, age: float) -> int:
    """
    Delete one batch of what consumers noted.
    """
    with transaction.atomic(using=alias):
        rows = InboxEntry.objects.using(alias)
        old = rows.filter(received_at__lt=FromNow(-age)).order_by("received_at").values_list("pk", flat=True)
        return raw(rows.filter(pk__in=list(old[:BATCH])))


def raw(rows: models.QuerySet[models.Model]) -> int:
    """
    Delete rows in one statement; nothing in the database refers to them.
    """
    return int(rows._raw_delete(rows.db) or 0)  # Django answers None where it sees that no row can fit
