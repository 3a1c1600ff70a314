"""
The machines of the orders.
"""

from __future__ import annotations

from django_logic import Process, Transition
from kits.effect import do_nothing


def no_effect(instance: object, **kwargs: object) -> None:
    """
    Stand for work done under the lock.
    """
    do_nothing(instance)


class PlainProcess(Process):
    """
    Two states and a way back, for the contention run.
    """

    transitions = [
        Transition("approve", sources=["draft"], target="approved"),
        Transition("reopen", sources=["approved"], target="draft"),
    ]


class EffectProcess(Process):
    """
    One no-op side effect.
    """

    transitions = [Transition("approve", sources=["draft"], target="approved", side_effects=[no_effect])]
