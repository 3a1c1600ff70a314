"""
One transition with one no-op side effect.
"""

from __future__ import annotations

from django_logic import Process, Transition
from kits.effect import do_nothing


def no_effect(instance: object, **kwargs: object) -> None:
    """
    Stand for work done under the lock.
    """
    do_nothing(instance)


class OrderProcess(Process):
    """
    The machine of the order.
    """

    process_name = "process"
    transitions = [Transition("approve", sources=["draft"], target="approved", side_effects=[no_effect])]
