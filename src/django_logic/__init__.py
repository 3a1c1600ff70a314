"""
A workflow library for Django: declare states and moves once, and let one call keep them true.
"""

from __future__ import annotations

from django_logic.binding import ProcessManager
from django_logic.constraints import StateConstraint, TransitionConstraint
from django_logic.process import Process
from django_logic.table import TransitionsMixin
from django_logic.transitions import Action, Transition, refusal_message

__all__ = [
    "Action",
    "Process",
    "ProcessManager",
    "StateConstraint",
    "Transition",
    "TransitionConstraint",
    "TransitionsMixin",
    "refusal_message",
]
