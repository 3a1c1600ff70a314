"""
Bind the orders.
"""

from __future__ import annotations

from django.apps import AppConfig

from django_logic import ProcessManager
from kits.ours import outbox
from kits.ours.process import EffectProcess, PlainProcess


class OursConfig(AppConfig):
    """
    The kit as a Django app.
    """

    name = "kits.ours"
    label = "bench_ours"

    def ready(self) -> None:
        """
        Bind every order to its machine and register the event row.
        """
        for name in ("PlainOrder", "AnnouncedOrder"):
            ProcessManager.bind_model_process(self.get_model(name), PlainProcess, state_field="state")
        for name in ("EffectOrder", "AnnouncedEffectOrder"):
            ProcessManager.bind_model_process(self.get_model(name), EffectProcess, state_field="state")
        outbox.register()
