"""
Bind the order, word for word as the manual does it.
"""

from __future__ import annotations

from django.apps import AppConfig

from django_logic import ProcessManager


class ShopConfig(AppConfig):
    """
    Configure the shop.
    """

    name = "shop"

    def ready(self) -> None:
        """
        Bind; imports stand here so that they build no cycle.
        """
        from .models import Order
        from .process import OrderProcess

        ProcessManager.bind_model_process(Order, OrderProcess, state_field="status")
