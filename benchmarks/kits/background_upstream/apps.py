"""
Bind the published library to the order.
"""

from __future__ import annotations

from django.apps import AppConfig, apps


class UpstreamConfig(AppConfig):
    """
    The kit as a Django app.
    """

    name = "kits.background_upstream"
    label = "bench_upstream"

    def ready(self) -> None:
        """
        Bind the order in the one supported place.
        """
        from django_logic import ProcessManager
        from kits.background_upstream.process import OrderProcess

        order = apps.get_model("bench_jobs", "Order")
        ProcessManager.bind_model_process(order, OrderProcess, state_field="state")
