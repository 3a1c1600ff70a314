"""
Add one event row to the moves of the announced orders, through the library's extension point.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.apps import apps
from django.utils import timezone

from django_logic.extension import Row, register_contributor

if TYPE_CHECKING:
    from django_logic.moves import Move

ANNOUNCED = ("AnnouncedOrder", "AnnouncedEffectOrder")


def announce(move: Move) -> Iterable[Row]:
    """
    Return the event row of a move, the same one the rivals write by hand.
    """
    if move.column.owner.__name__ not in ANNOUNCED:
        return ()
    values = {
        "topic": f"order.{move.new}",
        "payload": {"order_id": move.pk, "from": move.expected, "to": move.new},
        "created_at": timezone.now(),
    }
    return (Row(model=apps.get_model("bench_ours", "OutboxMessage"), values=values),)


def register() -> None:
    """
    Register the contributor.
    """
    register_contributor(announce)
