"""
What the list of deliveries can be narrowed to.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_logic.outbox import destinations
from django_logic.outbox.models import DeliveryState, OutboxTally

__all__ = ["DestinationFilter", "StateFilter"]


class StateFilter(admin.SimpleListFilter):
    """
    Narrow the list to one state; the dead come first, since they are what people look for.
    """

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """
        Offer every state.
        """
        others = [(state.value, state.label) for state in DeliveryState if state is not DeliveryState.DEAD]
        return [(DeliveryState.DEAD.value, _("dead letters")), *others]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """
        Keep the deliveries in the state that was chosen.
        """
        return queryset.filter(state=self.value()) if self.value() in DeliveryState.values else queryset


class DestinationFilter(admin.SimpleListFilter):
    """
    Narrow the list to one destination, without reading every row to know which there are.
    """

    title = _("destination")
    parameter_name = "destination"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """
        Offer the destinations of the settings, and those that were once among them.
        """
        alias = model_admin.get_queryset(request).db
        tried = OutboxTally.objects.using(alias).order_by("destination").values_list("destination", flat=True)
        return [(name, name) for name in dict.fromkeys([*destinations.names(), *tried.distinct()])]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """
        Keep the deliveries to the destination that was chosen.
        """
        return queryset if self.value() is None else queryset.filter(destination=self.value())
