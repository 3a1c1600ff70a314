"""
Bind the published library to the order.
"""

from __future__ import annotations

from django.apps import AppConfig

from django_logic import ProcessManager
from kits.upstream.process import OrderProcess


class UpstreamConfig(AppConfig):
    """
    The kit as a Django app.
    """

    name = "kits.upstream"
    label = "bench_upstream"

    def ready(self) -> None:
        """
        Bind the order in the one supported place.
        """
        ProcessManager.bind_model_process(self.get_model("Order"), OrderProcess, state_field="state")
