"""
viewflow.fsm with the save its manual tells the user to write: no lock, no history.
"""

from __future__ import annotations

from viewflow import fsm

from harness.contender import Contender, OrmContender
from kits.viewflow.models import Order


class OrderFlow:
    """
    The machine around one order.
    """

    state = fsm.State(["draft", "approved"], default="draft")

    def __init__(self, order: Order) -> None:
        """
        Wrap an order.
        """
        self.order = order

    @state.setter()
    def _set_state(self, value: str) -> None:
        self.order.state = value

    @state.getter()
    def _get_state(self) -> str:
        return self.order.state

    @state.transition(source="draft", target="approved")
    def approve(self) -> None:
        """
        Move without work.
        """

    @state.on_success()
    def _save(self, descriptor: object, source: str, target: str) -> None:
        self.order.save(update_fields=["state", "updated_at"])


def approve(order: Order) -> None:
    """
    Move one order.
    """
    OrderFlow(order).approve()


CONTENDERS: list[Contender] = [
    OrmContender(key="viewflow", label="viewflow.fsm, saved by hand (no lock, no history)", model=Order, move=approve)
]
