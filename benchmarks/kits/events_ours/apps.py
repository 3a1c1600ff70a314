"""
Bind the orders.
"""

from __future__ import annotations

from django.apps import AppConfig

from django_logic import ProcessManager
from kits.ours.process import EffectProcess, PlainProcess


class OursConfig(AppConfig):
    """
    The kit as a Django app.
    """

    name = "kits.events_ours"
    label = "bench_events"

    def ready(self) -> None:
        """
        Bind each order to its machine.
        """
        ProcessManager.bind_model_process(self.get_model("Order"), PlainProcess, state_field="state")
        ProcessManager.bind_model_process(self.get_model("EffectOrder"), EffectProcess, state_field="state")
