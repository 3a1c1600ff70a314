"""
One transition without work and one with a database write, as the published manual shows them.
"""

from __future__ import annotations

from typing import Any

from django_logic import Process
from django_logic.background import BackgroundTransition
from kits.background_jobs.moves import write_event


def transition(action: str, **options: Any) -> BackgroundTransition:
    """
    Declare a move to the target over the busy state.
    """
    return BackgroundTransition(
        action_name=action,
        sources=["draft"],
        target="approved",
        in_progress_state="processing",
        failed_state="failed",
        queue="bench",
        **options,
    )


class OrderProcess(Process):
    """
    The machine of the order.
    """

    process_name = "process"
    transitions = [transition("approve"), transition("approve_with_write", side_effects=[write_event])]
