"""
Bind the test models the way a project does.
"""

from __future__ import annotations

from django.apps import AppConfig


class TestAppConfig(AppConfig):
    """
    Configure the app of the tests.
    """

    name = "tests.app"
    label = "app"

    def ready(self) -> None:
        """
        Bind every model that has a process.
        """
        from django_logic import ProcessManager
        from tests.app import models, process

        ProcessManager.bind_model_process(models.Order, process.OrderProcess, state_field="status")
        ProcessManager.bind_model_process(models.Parcel, process.ParcelProcess, state_field="parcel_status")
        ProcessManager.bind_model_process(models.Parcel, process.PaymentProcess, state_field="payment_status")
        for model in (
            models.UuidDocument,
            models.SlugDocument,
            models.Base,
            models.FromAbstract,
            models.Saved,
            models.Ticket,
        ):
            ProcessManager.bind_model_process(model, process.DocumentProcess)
        ProcessManager.bind_model_process(models.Level, process.LevelProcess)
