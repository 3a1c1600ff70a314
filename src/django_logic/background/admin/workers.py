"""
Workers in the admin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_logic.background.models import Worker
from django_logic.background.safety_nets import SEEN_WITHIN
from django_logic.clock import FromNow

if TYPE_CHECKING:
    WorkerBase = admin.ModelAdmin[Worker]
else:
    WorkerBase = admin.ModelAdmin

__all__ = ["WorkerAdmin"]


@admin.register(Worker)
class WorkerAdmin(WorkerBase):
    """
    Show which workers there are and how they fare.
    """

    list_display = (
        *("name", "is_alive", "host", "pid", "queues", "concurrency", "is_listening", "claim_ms"),
        *("code_version", "started_at", "last_seen_at"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        """
        Return the workers with whether each was seen just now, by the database's clock.
        """
        is_alive = ExpressionWrapper(Q(last_seen_at__gte=FromNow(-SEEN_WITHIN)), output_field=BooleanField())
        return super().get_queryset(request).annotate(is_alive=is_alive)

    @admin.display(boolean=True, description=_("alive"))
    def is_alive(self, worker: Any) -> bool:
        """
        Tell whether a worker was seen just now.
        """
        return bool(worker.is_alive)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """
        Deny: a worker enters itself.
        """
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """
        Deny: what a worker says is its own.
        """
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """
        Deny: workers strike themselves out, dead ones are forgotten after a day.
        """
        return False
