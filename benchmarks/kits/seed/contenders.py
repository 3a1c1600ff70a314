"""
The seed's hand-written writer: conditional update, no lock, no sequence.
"""

from __future__ import annotations

from harness.contender import TARGET, Contender, OrmContender
from kits.seed.models import Order, OutboxMessage, StatusChange


def approve(order: Order) -> None:
    """
    Move one order.
    """
    order.transition_to(TARGET)


CONTENDERS: list[Contender] = [
    OrmContender(
        key="seed",
        label="hand-written transition_to of the seed (history + outbox row, no lock)",
        model=Order,
        move=approve,
        records=[StatusChange, OutboxMessage],
    )
]
