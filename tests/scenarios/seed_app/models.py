"""
The lesson's order and payment, its code kept as it is written there.

Enum and table stand at module level, since a class body can't be seen from its Meta.
"""

from __future__ import annotations

from typing import Any

from django import VERSION
from django.db import models, transaction
from django.utils import timezone

from django_logic import TransitionConstraint, TransitionsMixin
from django_logic.exceptions import InvalidTransition


def check_constraint(*, condition: models.Q, name: str) -> models.CheckConstraint:
    """
    Make the lesson's constraint; Django 4.2 calls its condition ``check``.
    """
    return models.CheckConstraint(**{"condition" if VERSION >= (5, 1) else "check": condition, "name": name})


class Status(models.TextChoices):
    """
    Name the states of an order.
    """

    DRAFT = "draft", "Draft"
    PLACED = "placed", "Placed"
    PROCESSING = "processing", "Processing"
    FULFILLED = "fulfilled", "Fulfilled"
    CANCELLED = "cancelled", "Cancelled"


# The edges, as data. Absent edges are the whole point: "fulfilled" and
# "cancelled" map to empty sets, which is what makes them terminal.
TRANSITIONS = {
    Status.DRAFT: {Status.PLACED, Status.CANCELLED},
    Status.PLACED: {Status.PROCESSING, Status.CANCELLED},
    Status.PROCESSING: {Status.FULFILLED, Status.CANCELLED},
    Status.FULFILLED: set(),
    Status.CANCELLED: set(),
}


class Order(TransitionsMixin, models.Model):
    """
    The lesson's order, moved by the library.
    """

    Status = Status
    TRANSITIONS = TRANSITIONS

    status = models.CharField(max_length=12, choices=Status.choices, default=Status.DRAFT, db_index=True)
    note = models.CharField(max_length=100, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            # choices is validated by forms, not by the database. This is what
            # stops a data migration or an update() writing "shipped".
            check_constraint(
                condition=models.Q(status__in=[c[0] for c in Status.choices]),
                name="order_status_valid",
            ),
            TransitionConstraint(field="status", table=TRANSITIONS, name="order_status_moves"),
        ]

    def skus(self) -> list[str]:
        """
        Return what has to be reserved.
        """
        return ["A1", "B2"]


class Payment(TransitionsMixin, models.Model):
    """
    The lesson's other machine, with plain text for states and another name for the column.
    """

    state_field = "state"
    TRANSITIONS = {
        "pending": {"processing"},
        "processing": {"succeeded", "failed"},
        "succeeded": set(),
        "failed": set(),
    }
    state = models.CharField(max_length=12, default="pending")


class OrderEvent(models.Model):
    """
    What must be consistent with the status.
    """

    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    kind = models.CharField(max_length=30)
    actor = models.CharField(max_length=30, null=True)
    reservation = models.CharField(max_length=30)


class Stock(models.Model):
    """
    What is reserved.
    """

    sku = models.CharField(max_length=10)
    reserved = models.IntegerField(default=0)


class StatusChange(models.Model):
    """
    The lesson's own history, written by hand.
    """

    order = models.ForeignKey("HandmadeOrder", on_delete=models.CASCADE)
    from_state = models.CharField(max_length=12)
    to_state = models.CharField(max_length=12)
    actor = models.CharField(max_length=30, null=True)
    reason = models.TextField(blank=True)
    occurred_at = models.DateTimeField()


class OutboxMessage(models.Model):
    """
    The lesson's own outbox, written by hand.
    """

    topic = models.CharField(max_length=50)
    payload = models.JSONField()


class HandmadeOrder(models.Model):
    """
    The lesson's order as it is written there, without the library's engine; the database guards it all the same.
    """

    TRANSITIONS = TRANSITIONS

    status = models.CharField(max_length=12, choices=Status.choices, default=Status.DRAFT, db_index=True)
    updated_at = models.DateTimeField(auto_now=True)
    published: list[str] = []

    class Meta:
        constraints = [
            TransitionConstraint(field="status", table=TRANSITIONS, initial=Status.DRAFT, name="handmade_status_moves"),
        ]

    def transition_to(self, target: str, *, actor: Any = None, reason: str = "") -> bool:
        """The single writer of Order.status — and therefore the single place
        history and events are produced."""
        previous = self.status

        if previous == target:
            return False  # duplicate request: already done

        if target not in self.TRANSITIONS[previous]:
            raise InvalidTransition(f"Order {self.pk}: {previous} → {target}")

        with transaction.atomic():
            # The conditional update IS the concurrency check: if another worker
            # moved the row first, WHERE status = previous matches nothing.
            updated = HandmadeOrder.objects.filter(pk=self.pk, status=previous).update(
                status=target, updated_at=timezone.now()
            )
            if not updated:
                return False  # somebody else won the race

            self.status = target

            # Domain history: from AND to, so the row stands alone.
            StatusChange.objects.create(
                order=self,
                from_state=previous,
                to_state=target,
                actor=actor,
                reason=reason,
                occurred_at=timezone.now(),
            )

            # An outbox row, written in the SAME transaction as the change.
            # If the broker is down the event is still recorded, and a relay
            # publishes it later — the event cannot be lost or invented.
            OutboxMessage.objects.create(
                topic=f"order.{target}",
                payload={"order_id": self.pk, "from": previous, "to": target},
            )

        # Fast-path publish AFTER the commit. The relay is the safety net; this
        # is only the low-latency path, and it must never run before the commit.
        transaction.on_commit(lambda: self.published.append(self.status))
        return True


class Consignment(models.Model):
    """
    The manual's order as its chapter on background transitions has it.
    """

    STATUS_CHOICES = [
        ("draft", "Draft"),
        ("approved", "Approved"),
        ("fulfilling", "Fulfilling"),
        ("fulfilled", "Fulfilled"),
        ("fulfilment_failed", "Fulfilment failed"),
        ("cancelled", "Cancelled"),
    ]
    status = models.CharField(max_length=32, choices=STATUS_CHOICES, default="draft")


class Booking(models.Model):
    """
    What an attempt writes in its own transaction.
    """

    consignment_id = models.BigIntegerField()
    pid = models.IntegerField()
