"""
Bind the shop's models to their processes.
"""

from __future__ import annotations

from django.apps import AppConfig

from django_logic import ProcessManager


class ShopConfig(AppConfig):
    """
    Configure the shop.
    """

    name = "example.shop"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """
        Bind, now that every model is loaded.
        """
        # Imported here, because processes need models and models can't be imported before the apps are ready.
        from example.shop.models import Order, Payment
        from example.shop.process import OrderProcess, PaymentProcess

        ProcessManager.bind_model_process(Order, OrderProcess, state_field="status")
        ProcessManager.bind_model_process(Payment, PaymentProcess, state_field="status")
