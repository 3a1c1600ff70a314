"""
Marking: what became of a claim's deliveries is written under its token, so a relay that lost its lease marks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db import connections, models, transaction
from django.db.models import F
from django.db.models.functions import Greatest

from django_logic.call import storable
from django_logic.clock import FromNow
from django_logic.outbox import options
from django_logic.outbox.models import DeliveryState, OutboxDelivery, OutboxTally
from django_logic.outbox.publishers import Fate, Result
from django_logic.outbox.relay.claim import QUIET, Item, composed

__all__ = ["count", "mark_failed", "mark_sent", "put_off", "release", "renew"]

#: Losing this commit in a crash of the server sends some messages again, so it does not wait for the disk.
SENT = """
UPDATE {deliveries} delivery SET state = 'sent', is_open = false, sent_at = STATEMENT_TIMESTAMP(), lease_token = NULL,
    error = '', attempts = GREATEST(delivery.attempts, 1)
FROM (SELECT 1) AS once{quiet}
WHERE delivery.id = ANY(%(pks)s) AND delivery.lease_token = %(token)s
"""

#: How long an event that was put off waits at least; seconds.
SHORTEST_PAUSE = 1.0
#: Longest text of an error that is kept.
LONGEST_ERROR = 10_000


def mark_sent(alias: str, token: UUID, items: Sequence[Item]) -> int:
    """
    Mark deliveries that arrived; return how many were still this claim's.
    """
    if not items:
        return 0
    pks = [item.pk for item in items]
    if connections[alias].vendor == "postgresql":
        quiet = "" if connections[alias].in_atomic_block else QUIET
        with connections[alias].cursor() as cursor:
            cursor.execute(composed(SENT, quiet), {"pks": pks, "token": token})
            return int(cursor.rowcount)
    return held(alias, token, pks).update(
        state=DeliveryState.SENT,
        is_open=False,
        sent_at=FromNow(),
        lease_token=None,
        error="",
        attempts=Greatest(F("attempts"), 1),
    )


def mark_failed(alias: str, token: UUID, item: Item, result: Result) -> Fate | None:
    """
    Mark a delivery that did not arrive, with a pause before the next attempt, or dead; None when it was not ours.

    A dead one keeps its key closed, unless its topic lets later messages pass.
    """
    is_dead = result.fate is Fate.DEAD or item.attempt >= options.max_attempts()
    values: dict[str, Any] = {
        "attempts": item.attempt,
        "error": kept(result.error),
        "handled": sorted(result.handled),
        "lease_token": None,
    }
    if is_dead:
        # Who waits for a message that is gone waits for nothing.
        is_open = item.event is not None and not options.skips(item.event.topic)
        values |= {"state": DeliveryState.DEAD, "is_open": is_open}
    else:
        values |= {
            "state": DeliveryState.PENDING,
            "next_attempt_at": FromNow(options.backoff().pause(item.attempt)),
        }
    if not held(alias, token, [item.pk]).update(**values):
        return None
    return Fate.DEAD if is_dead else Fate.FAILED


def put_off(alias: str, token: UUID, item: Item, result: Result) -> None:
    """
    Give a delivery back, as if it had never been tried, for after a pause of its own.
    """
    held(alias, token, [item.pk]).update(
        state=DeliveryState.PENDING,
        attempts=item.attempt - 1,
        error=kept(result.error),
        handled=sorted(result.handled),
        lease_token=None,
        # Never at once: nothing counts how often.
        next_attempt_at=FromNow(max(SHORTEST_PAUSE, options.backoff().pause(1))),
    )


def release(alias: str, token: UUID, items: Iterable[Item], error: str = "") -> None:
    """
    Give deliveries back that were not attempted, as if they had never been claimed.
    """
    for is_counted in (True, False):
        pks = [item.pk for item in items if item.is_counted is is_counted]
        if pks:
            values: dict[str, Any] = {"attempts": F("attempts") - 1} if is_counted else {}
            if error:
                values["error"] = kept(error)
            held(alias, token, pks).update(
                state=DeliveryState.PENDING, lease_token=None, next_attempt_at=FromNow(), **values
            )


def kept(error: str) -> str:
    """
    Return an error as every database stores it.
    """
    return storable(error)[:LONGEST_ERROR]


def renew(alias: str, token: UUID, items: Sequence[Item]) -> bool:
    """
    Keep deliveries for another lease; False when not all were still this claim's.
    """
    kept = held(alias, token, [item.pk for item in items]).update(next_attempt_at=FromNow(options.lease_seconds()))
    return kept == len(items)


def count(alias: str, destination: str, fates: dict[Fate, int]) -> None:
    """
    Add attempts to the tally of a destination.
    """
    for fate, number in fates.items():
        rows = OutboxTally.objects.using(alias).filter(destination=destination, fate=fate.value)
        if number and not rows.update(count=F("count") + number):
            with transaction.atomic(using=alias):
                OutboxTally.objects.using(alias).bulk_create(
                    [OutboxTally(destination=destination, fate=fate.value)], ignore_conflicts=True
                )
                rows.update(count=F("count") + number)


def held(alias: str, token: UUID, pks: Sequence[int]) -> models.QuerySet[OutboxDelivery]:
    """
    Return the rows among these that are still this claim's.
    """
    return OutboxDelivery.objects.using(alias).filter(pk__in=pks, lease_token=token)
