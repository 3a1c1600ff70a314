"""
An order whose state is a django-fsm-2 field; the log row comes from django-fsm-log's receiver.
"""

from __future__ import annotations

from django_fsm import FSMField, transition

from kits.effect import do_nothing
from kits.orders import OrderColumns, OutboxColumns


class Order(OrderColumns):
    """
    One transition without work, one with a call in its body.
    """

    state = FSMField(default="draft", max_length=32, db_index=True)

    @transition(field=state, source="draft", target="approved")
    def approve(self) -> None:
        """
        Move without work.
        """

    @transition(field=state, source="draft", target="approved")
    def approve_with_effect(self) -> None:
        """
        Move with one no-op side effect.
        """
        do_nothing(self)


class OutboxMessage(OutboxColumns):
    """
    The event of a move.
    """
