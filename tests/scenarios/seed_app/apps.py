"""
Install the lesson's models, which bind themselves by their tables, and bind the manual's process.
"""

from __future__ import annotations

from django.apps import AppConfig

from django_logic import ProcessManager


class SeedConfig(AppConfig):
    """
    Configure the app of the lesson.
    """

    name = "tests.scenarios.seed_app"
    label = "seed"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """
        Bind; imports stand here so that they build no cycle.
        """
        from tests.scenarios.seed_app.fulfilment import OrderProcess
        from tests.scenarios.seed_app.models import Consignment

        ProcessManager.bind_model_process(Consignment, OrderProcess, state_field="status")
