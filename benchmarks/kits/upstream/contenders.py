"""
The published django-logic with its state lock in Redis; it writes no history.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from harness.contender import Contender, OrmContender
from kits.upstream.models import Order


def approve(order: Any) -> None:
    """
    Move one order.
    """
    order.process.approve()


INSTALLED = version("django-logic")

CONTENDERS: list[Contender] = [
    OrmContender(
        key=f"django_logic_{INSTALLED}",
        label=f"published django-logic {INSTALLED}, one side effect, Redis lock (no history)",
        model=Order,
        move=approve,
    )
]
