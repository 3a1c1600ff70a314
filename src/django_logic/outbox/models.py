"""
The rows of events: what is told, which is never changed, and beside it how far its delivery is.

Messages have the columns that Debezium's outbox router reads without configuration. Delivery columns are written by
`django_logic.outbox.relay` only.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models, router, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_logic.clock import NOW
from django_logic.extension import written
from django_logic.outbox import destinations, options
from django_logic.outbox.indexes import OpenRows
from django_logic.outbox.payloads import checked
from django_logic.rows import Row

__all__ = ["DeliveryState", "InboxEntry", "OutboxDelivery", "OutboxMessage", "OutboxTally", "deliveries_of", "new_id"]


def new_id() -> uuid.UUID:
    """
    Return the id of a new message: one that grows with time where Python makes such ids.
    """
    make: Any = getattr(uuid, "uuid7", uuid.uuid4)
    made: uuid.UUID = make()
    return made


class DeliveryState(models.TextChoices):
    """
    Name how far a delivery is.
    """

    PENDING = "pending", _("pending")
    LEASED = "leased", _("leased")
    SENT = "sent", _("sent")
    DEAD = "dead", _("dead")


class MessageQuerySet(models.QuerySet["OutboxMessage"]):
    """
    Add messages together with their deliveries, and change none.
    """

    def bulk_create(
        self, objs: Iterable[OutboxMessage], batch_size: int | None = None, *arguments: Any, **conflicts: Any
    ) -> list[OutboxMessage]:
        """
        Insert messages with their deliveries.

        Raises: TypeError for options that would change stored ones, PayloadRefused for a payload that can't be stored.
        """
        if any(arguments) or any(conflicts.values()):
            raise TypeError(FROZEN)
        messages = list(objs)
        for message in messages:
            checked(message.topic, message.payload)
        alias = self.select_for_update().db  # the alias that writes of this queryset go to
        with transaction.atomic(using=alias):
            made = super().bulk_create(messages, batch_size)
            OutboxDelivery.objects.using(alias).bulk_create(
                [one for message in messages for one in message.new_deliveries()]
            )
            written(alias)
        return made

    def update(self, **values: Any) -> int:
        """
        Refuse to change what is told already.
        """
        raise TypeError(FROZEN)


FROZEN = (
    "An OutboxMessage is never changed: it may have been delivered, and readers of the database's log take an UPDATE"
    " for an error. Write another message."
)


class OutboxMessage(models.Model):
    """
    Hold what one event tells; written in the transaction of what it tells about, and never changed.

    Example::

        OutboxMessage.objects.create(topic="order.counted", key=str(order.pk), payload={"order_id": order.pk})

    Without a ``key`` it has no place in any order. Source: docs/events.md
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    aggregate = models.CharField(_("app and model"), max_length=255, db_column="aggregatetype", blank=True, default="")
    key = models.CharField(_("key"), max_length=255, db_column="aggregateid", blank=True, default="")
    topic = models.CharField(_("topic"), max_length=255, db_column="type")
    payload = models.JSONField(_("payload"), encoder=DjangoJSONEncoder, default=dict)
    sequence = models.BigIntegerField(_("sequence"), null=True, blank=True)
    occurred_at = models.DateTimeField(_("occurred at"), default=timezone.now)
    schema = models.CharField(_("schema"), max_length=255, db_column="dataschema", blank=True, default="")
    traceparent = models.CharField(_("trace"), max_length=100, blank=True, default="")

    objects = MessageQuerySet.as_manager()

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        ordering = ("occurred_at", "id")
        permissions = (("view_payload", "Can view the payload of events"),)
        indexes = (models.Index(fields=["occurred_at"], name="dl_outbox_occurred"),)

    def __str__(self) -> str:
        return f"{self.topic} {self.key}".rstrip()

    def save(self, *arguments: Any, **keywords: Any) -> None:
        """
        Insert the message with its deliveries.

        Raises: TypeError for one that is stored already, PayloadRefused for a payload that can't be.
        """
        if not self._state.adding or keywords.get("force_update") or keywords.get("update_fields") or arguments:
            raise TypeError(FROZEN)
        checked(self.topic, self.payload)
        alias = keywords.get("using") or router.db_for_write(type(self), instance=self)
        with transaction.atomic(using=alias):
            super().save(using=alias, force_insert=True)
            OutboxDelivery.objects.using(alias).bulk_create(self.new_deliveries())
            written(alias)

    def new_deliveries(self) -> list[OutboxDelivery]:
        """
        Return the deliveries this message needs, not saved yet.
        """
        return [
            OutboxDelivery(**row.everything) for row in deliveries_of(self.id, self.aggregate, self.key, self.topic)
        ]


class OutboxDelivery(models.Model):
    """
    Hold how far the delivery of one message to one destination is.

    ``next_attempt_at`` is the one clock: a pause after an error and a lease both say when the row is due again. An open
    row holds its key: later ones of the same object and destination wait for it.
    """

    message = models.ForeignKey(OutboxMessage, models.CASCADE, related_name="deliveries", db_constraint=False)
    destination = models.CharField(_("destination"), max_length=100)
    aggregate = models.CharField(_("app and model"), max_length=255, blank=True, default="")
    key = models.CharField(_("key"), max_length=255)
    topic = models.CharField(_("topic"), max_length=255)
    state = models.CharField(
        _("state"), max_length=10, choices=DeliveryState.choices, default=DeliveryState.PENDING.value
    )
    is_open = models.BooleanField(_("holds its key"), default=True)
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    # Written by the database's clock like every other time, so not by Django.
    created = models.DateTimeField(_("created"))
    next_attempt_at = models.DateTimeField(_("next attempt"))
    sent_at = models.DateTimeField(_("sent at"), null=True, blank=True)
    lease_token = models.UUIDField(_("lease"), null=True, blank=True)
    relay = models.CharField(_("relay"), max_length=255, blank=True, default="")
    error = models.TextField(_("error"), blank=True, default="")
    #: The subscribers that took the event in an attempt that failed for others.
    handled = models.JSONField(_("taken by"), default=list, blank=True)

    class Meta:
        verbose_name = _("delivery")
        verbose_name_plural = _("deliveries")
        ordering = ("id",)
        indexes = (
            OpenRows(
                fields=["destination", "aggregate", "key", "id"], condition=Q(is_open=True), name="dl_outbox_open"
            ),
            models.Index(fields=["id"], condition=Q(state="dead"), name="dl_outbox_dead"),
        )

    def __str__(self) -> str:
        return f"{self.pk}: {self.topic} {self.key} to {self.destination}"


class OutboxTally(models.Model):
    """
    Count the attempts of a destination by how they ended, since rows that are purged tell nothing any more.
    """

    destination = models.CharField(_("destination"), max_length=100)
    fate = models.CharField(_("fate"), max_length=20)
    count = models.PositiveBigIntegerField(_("count"), default=0)

    class Meta:
        verbose_name = _("tally")
        verbose_name_plural = _("tallies")
        constraints = (models.UniqueConstraint(fields=["destination", "fate"], name="dl_outbox_one_tally"),)

    def __str__(self) -> str:
        return f"{self.destination} {self.fate}: {self.count}"


class InboxEntry(models.Model):
    """
    Note that a consumer has taken a message, in the transaction of what it did with it.
    """

    consumer = models.CharField(_("consumer"), max_length=255)
    message_id = models.CharField(_("message"), max_length=255)
    received_at = models.DateTimeField(_("received at"), default=timezone.now)

    class Meta:
        verbose_name = _("message taken")
        verbose_name_plural = _("messages taken")
        constraints = (models.UniqueConstraint(fields=["consumer", "message_id"], name="dl_outbox_taken_once"),)
        indexes = (models.Index(fields=["received_at"], name="dl_outbox_received"),)

    def __str__(self) -> str:
        return f"{self.consumer}: {self.message_id}"


def deliveries_of(ident: uuid.UUID, aggregate: str, key: str, topic: str) -> list[Row]:
    """
    Return the deliveries a message needs: one a destination, none without a relay of ours.
    """
    if not options.has_own_relay():
        return []
    # What has no key has no place in an order, so it gets one of its own.
    own = {"message_id": ident, "key": str(key) if key != "" else str(ident), "topic": topic}
    return [
        Row(
            model=OutboxDelivery,
            values=own,
            alike=(("destination", name), ("aggregate", aggregate), ("created", NOW), ("next_attempt_at", NOW)),
        )
        for name in destinations.names_for(topic)
    ]
