"""
The machine of the order: one transition without work, one with a database write.
"""

from __future__ import annotations

from django_logic import Process
from django_logic.background import BackgroundTransition
from kits.background_jobs.moves import write_event


class OrderProcess(Process):
    """
    From draft over processing to approved.
    """

    transitions = [
        BackgroundTransition(
            "approve",
            sources=["draft"],
            target="approved",
            in_progress_state="processing",
            failed_state="failed",
            queue="bench",
        ),
        BackgroundTransition(
            "approve_with_write",
            sources=["draft"],
            target="approved",
            in_progress_state="processing",
            failed_state="failed",
            queue="bench",
            side_effects=[write_event],
        ),
    ]
