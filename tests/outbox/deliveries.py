"""
Write messages, change their deliveries as time does, and publish with an answer of one's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django_logic.clock import FromNow
from django_logic.outbox.event import Event
from django_logic.outbox.models import DeliveryState, OutboxDelivery, OutboxMessage
from django_logic.outbox.publishers import Result, sent
from django_logic.outbox.relay.claim import Claim

#: Where events go in the tests' settings.
SUBSCRIBERS = "subscribers"


def write(*keys: str, topic: str = "parcel.told", using: str = "default") -> list[int]:
    """
    Write one message for each key, in this order; return the keys of their deliveries.
    """
    made = [
        OutboxMessage.objects.using(using).create(topic=topic, key=key, payload={"number": number})
        for number, key in enumerate(keys, start=1)
    ]
    rows = OutboxDelivery.objects.using(using).filter(message__in=made).order_by("pk")
    return list(rows.values_list("pk", flat=True))


def change(*pks: int, **values: Any) -> None:
    """
    Change deliveries behind a relay's back.
    """
    assert OutboxDelivery.objects.filter(pk__in=pks).update(**values) == len(pks)


def pass_time(*pks: int) -> None:
    """
    Let pauses and leases of deliveries, or of all, be over.
    """
    rows = OutboxDelivery.objects.filter(pk__in=pks) if pks else OutboxDelivery.objects.all()
    rows.update(next_attempt_at=FromNow(-1))


def fates(*pks: int) -> list[tuple[str, int]]:
    """
    Return the states and attempts of deliveries, or of all, oldest first.
    """
    rows = OutboxDelivery.objects.filter(pk__in=pks) if pks else OutboxDelivery.objects.all()
    return list(rows.order_by("pk").values_list("state", "attempts"))


def row(pk: int) -> OutboxDelivery:
    """
    Read one delivery.
    """
    return OutboxDelivery.objects.get(pk=pk)


def rows_of(claimed: Claim) -> list[list[int]]:
    """
    Return the deliveries of a claim, one list for each key.
    """
    return [[item.pk for item in run] for run in claimed.runs.values()]


def kill(*pks: int, attempts: int = 1) -> None:
    """
    Make deliveries dead whose topic lets later ones pass.
    """
    change(*pks, state=DeliveryState.DEAD, is_open=False, attempts=attempts, error="no")


class Answering:
    """
    Publish to nobody: note the batches, and answer what a function says of each event.
    """

    def __init__(self, answer: Callable[[Event], Any] = lambda event: sent(), batch_size: int = 100) -> None:
        self.answer, self.batch_size = answer, batch_size
        self.batches: list[list[Event]] = []

    @property
    def told(self) -> list[tuple[str, int]]:
        """
        The key and number of each event, in the order they came.
        """
        return [(event.key, event.payload["number"]) for batch in self.batches for event in batch]

    def publish(self, events: Sequence[Event]) -> Sequence[Result]:
        """
        Note a batch and answer.
        """
        self.batches.append(list(events))
        answers: Any = [self.answer(event) for event in events]
        return list(answers)

    def close(self) -> None:
        """
        Let go of nothing.
        """
