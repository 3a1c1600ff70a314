"""
Bind the order.
"""

from __future__ import annotations

from django.apps import AppConfig, apps


class OursConfig(AppConfig):
    """
    The kit as a Django app.
    """

    name = "kits.background_ours"
    label = "bench_ours"

    def ready(self) -> None:
        """
        Bind the order to its machine.
        """
        from django_logic import ProcessManager
        from kits.background_ours.process import OrderProcess

        ProcessManager.bind_model_process(apps.get_model("bench_jobs", "Order"), OrderProcess, state_field="state")
