"""
Give the shop some orders with a past, for the pages that show what commands print.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import ModuleType

from django.core.management.color import no_style
from django.db import connection

from django_logic.background.models import Cancellation, TransitionMessage, Worker
from django_logic.models import StatusChange

START = datetime(2025, 3, 3, 9, 12, tzinfo=UTC)
#: How many hours each order stays in processing.
HOURS = (2, 3, 4, 5, 30)


def fill(shop: ModuleType) -> None:
    """
    Let five orders go from draft to fulfilled, and one stop on its way; their times are fixed.
    """
    for hours in HOURS:
        order = shop.Order.objects.create()
        for target, after in (("placed", 0.0), ("processing", 0.5), ("fulfilled", 0.5 + hours)):
            order.transition_to(target, actor="shop")
            date(order, START + timedelta(hours=after))
    waiting = shop.Order.objects.create()
    waiting.transition_to("placed", actor="shop")
    date(waiting, START)
    waiting.transition_to("processing", actor="shop")
    date(waiting, START + timedelta(minutes=30))


def date(order: object, moment: datetime) -> None:
    """
    Set when the newest move of an order happened.
    """
    newest = order.history.last()  # type: ignore[attr-defined]
    StatusChange.objects.filter(pk=newest.pk).update(occurred_at=moment)


def forget_background_work() -> None:
    """
    Delete the rows of background work, and count their ids from 1 again, so that a page can show them.
    """
    for model in (TransitionMessage, Cancellation, Worker):
        model._default_manager.all().delete()
    table = {"table": TransitionMessage._meta.db_table, "column": TransitionMessage._meta.pk.column}
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_by_name_sql(no_style(), [table]):
            cursor.execute(statement)
