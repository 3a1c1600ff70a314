"""
Deliveries in the admin: what waits, what went wrong, and how to put dead ones back.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_logic.outbox import relay
from django_logic.outbox.admin.filters import DestinationFilter, StateFilter
from django_logic.outbox.admin.reading import OnlyRead
from django_logic.outbox.models import DeliveryState, OutboxDelivery

if TYPE_CHECKING:
    DeliveryBase = admin.ModelAdmin[OutboxDelivery]
else:
    DeliveryBase = admin.ModelAdmin

__all__ = ["DeliveryAdmin"]

#: How many rows are put back by one statement.
BATCH = 1000
#: Characters of an error that a list shows.
SHORT = 120


@admin.register(OutboxDelivery)
class DeliveryAdmin(OnlyRead, DeliveryBase):
    """
    Show deliveries, the dead letters among them, and put these back.
    """

    list_display = ("id", "topic", "key", "destination", "state", "attempts", "due", "short_error")
    list_filter = (StateFilter, DestinationFilter)
    search_fields = ("topic", "key", "message__id__iexact")
    ordering = ("-id",)
    show_full_result_count = False
    actions = ("replay",)
    fields = (
        *("message", "destination", "topic", "aggregate", "key", "state", "is_open", "attempts", "error", "handled"),
        *("created", "next_attempt_at", "sent_at", "relay"),
    )

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """
        Let those who may change deliveries act on the list; a single one is only looked at.
        """
        return obj is None and admin.ModelAdmin.has_change_permission(self, request)

    @admin.display(description=_("next attempt"))
    def due(self, delivery: OutboxDelivery) -> datetime | None:
        """
        Return when a delivery is tried next; None for one that never is.
        """
        is_over = delivery.state in (DeliveryState.SENT, DeliveryState.DEAD)
        return None if is_over else delivery.next_attempt_at

    @admin.display(description=_("error"))
    def short_error(self, delivery: OutboxDelivery) -> str:
        """
        Return the beginning of the last error.
        """
        return delivery.error.partition("\n")[0][:SHORT]

    @admin.action(permissions=["change"], description=_("Replay: deliver the selected dead letters again"))
    def replay(self, request: HttpRequest, queryset: QuerySet[OutboxDelivery]) -> None:
        """
        Put the dead among the rows back, in their order.
        """
        alias = queryset.select_for_update().db  # where writes of these rows go; readers may be sent to a copy
        chosen = list(queryset.using(alias).order_by("pk").values_list("pk", flat=True))
        count = sum(relay.replay(chosen[start : start + BATCH], using=alias) for start in range(0, len(chosen), BATCH))
        for number, one, many, level in (
            (
                count,
                "%(count)d dead letter is delivered again.",
                "%(count)d dead letters are delivered again.",
                messages.SUCCESS,
            ),
            (
                len(chosen) - count,
                "%(count)d delivery is not dead and stays as it is.",
                "%(count)d deliveries are not dead and stay as they are.",
                messages.WARNING,
            ),
        ):
            if number:
                self.message_user(request, ngettext(one, many, number) % {"count": number}, level)
