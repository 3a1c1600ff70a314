"""
One transition without work and one with a database write, as the published manual shows them.
"""

from __future__ import annotations

from django.apps import apps

from django_logic import Process
from django_logic.background import BackgroundTransition


def write_event(instance: object, **kwargs: object) -> None:
    """
    Insert one row. Models are looked up here, since the published worker imports this module in its own order.
    """
    event = apps.get_model("bench_jobs", "Event")
    event.objects.create(topic="order.approved", payload={"order_id": instance.pk})  # type: ignore[attr-defined]


def transition(action: str, **options: object) -> BackgroundTransition:
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
