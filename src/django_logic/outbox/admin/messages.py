"""
Events in the admin: what each tells, as far as one may see it, and how far its deliveries are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_logic.masking import without_secrets, without_values
from django_logic.outbox.admin.reading import OnlyRead
from django_logic.outbox.models import OutboxDelivery, OutboxMessage

if TYPE_CHECKING:
    DeliveryBase = admin.TabularInline[OutboxDelivery, OutboxMessage]
    MessageBase = admin.ModelAdmin[OutboxMessage]
else:
    DeliveryBase, MessageBase = admin.TabularInline, admin.ModelAdmin

__all__ = ["MessageAdmin"]

#: Who has it sees what events tell; secrets stay hidden from everybody.
VIEW_PAYLOAD = f"{OutboxMessage._meta.app_label}.view_payload"


class DeliveryInline(OnlyRead, DeliveryBase):
    """
    Show the deliveries of an event on its page.
    """

    model = OutboxDelivery
    fields = readonly_fields = ("destination", "state", "attempts", "next_attempt_at", "sent_at", "relay", "error")
    extra = 0
    can_delete = False
    show_change_link = True


@admin.register(OutboxMessage)
class MessageAdmin(OnlyRead, MessageBase):
    """
    Show events with the state of their deliveries. Of a payload most people see the keys alone.
    """

    list_display = ("topic", "key", "sequence", "occurred_at", "states")
    search_fields = ("topic", "key", "id__iexact")
    ordering = ("-occurred_at",)
    show_full_result_count = False
    inlines = (DeliveryInline,)
    readonly_fields = ("outline", "contents")

    def get_queryset(self, request: HttpRequest) -> QuerySet[OutboxMessage]:
        """
        Return events without what is large, and how far their deliveries are, all at once.
        """
        states = OutboxDelivery.objects.only("message_id", "destination", "state")
        return super().get_queryset(request).defer("payload").prefetch_related(Prefetch("deliveries", states))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[tuple[Any, Any]]:
        """
        Return what a page shows to this user.
        """
        told = "contents" if request.user.has_perm(VIEW_PAYLOAD) else "outline"
        fields = ("id", "topic", "aggregate", "key", "sequence", "occurred_at", "schema", "traceparent", told)
        return [(None, {"fields": fields})]

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """
        Deny to narrow the list by what payloads hold, which would tell it bit by bit.
        """
        known = () if request is None else (request,)
        return lookup.partition("__")[0] != "payload" and super().lookup_allowed(lookup, value, *known)

    @admin.display(description=_("deliveries"))
    def states(self, message: OutboxMessage) -> str:
        """
        Return how far each delivery of an event is.
        """
        return ", ".join(f"{one.destination}: {one.get_state_display()}" for one in message.deliveries.all())

    @admin.display(description=_("payload"))
    def outline(self, message: OutboxMessage) -> SafeString:
        """
        Return the keys of what is told.
        """
        return as_text(without_values(message.payload))

    @admin.display(description=_("payload"))
    def contents(self, message: OutboxMessage) -> SafeString:
        """
        Return what is told, without secrets.
        """
        return as_text(without_secrets(message.payload))


def as_text(payload: Any) -> SafeString:
    """
    Return a payload as it is shown.
    """
    return format_html("<pre>{}</pre>", json.dumps(payload, indent=2, ensure_ascii=False))
