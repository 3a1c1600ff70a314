"""
Bind the model that worker processes are tested with.
"""

from __future__ import annotations

from django.apps import AppConfig


class WorkerAppConfig(AppConfig):
    """
    Configure the app of the worker tests.
    """

    name = "tests.worker_app"
    label = "worker_app"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """
        Bind the process.
        """
        from django_logic import ProcessManager
        from tests.worker_app import models, process

        ProcessManager.bind_model_process(models.Job, process.JobProcess)
