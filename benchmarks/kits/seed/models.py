"""
The seed's order: conditional update, history row and outbox row in one transaction.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.db import models, transaction
from django.utils import timezone

from kits.effect import do_nothing
from kits.orders import OrderColumns


class InvalidTransition(Exception):
    """A move that is not an edge of the table."""


class Order(OrderColumns):
    """
    An order that is its own machine.
    """

    state = models.CharField(max_length=32, default="draft", db_index=True)

    TRANSITIONS: ClassVar[dict[str, set[str]]] = {
        "draft": {"approved", "cancelled"},
        "approved": {"cancelled"},
        "cancelled": set(),
    }

    def transition_to(self, target: str, *, actor: Any = None, reason: str = "") -> bool:
        """
        Move the order; False for a duplicate and for a lost race.

        Source: section 87, "Idempotency, events, and the history the transition leaves behind".
        """
        previous = self.state
        if previous == target:
            return False
        if target not in self.TRANSITIONS[previous]:
            raise InvalidTransition(f"Order {self.pk}: {previous} → {target}")
        with transaction.atomic():
            unmoved = Order.objects.filter(pk=self.pk, state=previous)
            if not unmoved.update(state=target, updated_at=timezone.now()):
                return False
            self.state = target
            StatusChange.objects.create(
                order=self,
                from_state=previous,
                to_state=target,
                actor=actor,
                reason=reason,
                occurred_at=timezone.now(),
            )
            OutboxMessage.objects.create(
                topic=f"order.{target}", payload={"order_id": self.pk, "from": previous, "to": target}
            )
        transaction.on_commit(do_nothing)
        return True


class StatusChange(models.Model):
    """
    One row per move, with both states.
    """

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="changes")
    from_state = models.CharField(max_length=32)
    to_state = models.CharField(max_length=32)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    reason = models.TextField(blank=True)
    occurred_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.from_state} → {self.to_state}"


class OutboxMessage(models.Model):
    """
    The event of a move.
    """

    topic = models.CharField(max_length=100)
    payload = models.JSONField()

    def __str__(self) -> str:
        return self.topic
