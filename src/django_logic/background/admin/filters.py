"""
What the list of rows can be narrowed to.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_logic.background.declared import queues_in_use
from django_logic.background.explain import Code, rows_with
from django_logic.background.lanes import lanes_of

__all__ = ["QueueFilter", "ReasonFilter"]


class ReasonFilter(admin.SimpleListFilter):
    """
    Narrow the list to open rows with one reason.
    """

    title = _("reason")
    parameter_name = "code"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """
        Offer every reason a row can have.
        """
        return [(code.value, code.value) for code in Code if code is not Code.HELD_SNAPSHOT]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """
        Keep the rows with the reason that was chosen.
        """
        if self.value() not in {code.value for code in Code}:
            return queryset
        return queryset.filter(pk__in=rows_with(Code(str(self.value())), using=queryset.db).values("pk"))


class QueueFilter(admin.SimpleListFilter):
    """
    Narrow the list to one queue, without reading every row to know which there are.
    """

    title = _("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """
        Offer the queues that transitions use and those in which rows wait.
        """
        waiting = {lane.queue for lane in lanes_of(model_admin.get_queryset(request).db, None).lanes}
        return [(queue, queue) for queue in sorted(waiting | set(queues_in_use()))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """
        Keep the rows of the queue that was chosen.
        """
        return queryset if self.value() is None else queryset.filter(queue_name=self.value())
