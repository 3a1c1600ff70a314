"""
Removing what everybody has got, in batches that hold no lock for long.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.db import models, transaction
from django.db.models import Exists, OuterRef, Q

from django_logic.clock import FromNow
from django_logic.outbox import options
from django_logic.outbox.models import DeliveryState, InboxEntry, OutboxDelivery, OutboxMessage

__all__ = ["BATCH", "forget_taken", "purge", "purge_batch"]

#: How many deliveries one transaction deletes at most, each with its message, and how many such batches it looks at for
#: them: young rows in front, as after a replay, hide the old ones behind no more of them.
BATCH, LOOKS = 1000, 10


def purge(using: str = "default", days: float | None = None) -> int:
    """
    Delete messages that were sent everywhere longer ago than so many days; return how many rows of events went.

    Pending and dead ones stay whatever their age. What consumers noted goes after ``OUTBOX_INBOX_DAYS``. Transaction:
    one for each batch.
    """
    count = 0
    while found := purge_batch(using, days):
        count += found
    while forget_taken(using):
        pass
    return count


def before(days: float) -> FromNow:
    """
    Return the time so many days ago.
    """
    return FromNow(-timedelta(days=days).total_seconds())


def purge_batch(alias: str, days: float | None = None) -> int:
    """
    Delete one batch of messages; return how many rows went, 0 when nothing is left.

    With a relay of ours a message goes once all its deliveries are sent for so long; without one, by its age.
    """
    old = before(options.keep_days() if days is None else days)
    with transaction.atomic(using=alias):
        deliveries = OutboxDelivery.objects.using(alias)
        sent = sent_before(old, alias)
        gone = raw(deliveries.filter(pk__in=[pk for pk, _message in sent]))
        messages = OutboxMessage.objects.using(alias)
        left = Exists(deliveries.filter(message_id=OuterRef("pk")))
        if sent:
            return gone + raw(messages.filter(pk__in=[message for _pk, message in sent]).filter(~left))
        orphans = (
            messages.filter(occurred_at__lt=old).filter(~left).order_by("occurred_at").values_list("pk", flat=True)
        )
        return raw(messages.filter(pk__in=list(orphans[:BATCH])))


def sent_before(old: FromNow, alias: str) -> list[tuple[int, UUID]]:
    """
    Return deliveries that were sent long enough ago, with the ids of their messages: a part of one batch.

    To look for them everywhere would read all that is kept, each minute.
    """
    rows = OutboxDelivery.objects.using(alias).filter(is_open=False, state=DeliveryState.SENT).order_by("id")
    ages = rows.annotate(is_old=Q(sent_at__lt=old)).values_list("id", "message_id", "is_old")
    last = 0
    for _look in range(LOOKS):
        batch = list(ages.filter(id__gt=last)[:BATCH])
        found = [(pk, message) for pk, message, is_old in batch if is_old]
        if found or not batch:
            return found
        last = batch[-1][0]
    return []


def forget_taken(alias: str) -> int:
    """
    Delete one batch of what consumers noted.
    """
    with transaction.atomic(using=alias):
        rows = InboxEntry.objects.using(alias)
        old = (
            rows.filter(received_at__lt=before(options.inbox_days()))
            .order_by("received_at")
            .values_list("pk", flat=True)
        )
        return raw(rows.filter(pk__in=list(old[:BATCH])))


def raw(rows: models.QuerySet[models.Model]) -> int:
    """
    Delete rows in one statement; nothing in the database refers to them.
    """
    return int(rows._raw_delete(rows.db) or 0)  # Django answers None where it sees that no row can fit
