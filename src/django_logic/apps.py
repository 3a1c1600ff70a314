"""
The app: checks the settings and connects what listens to the engine.
"""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class DjangoLogicConfig(AppConfig):
    """
    Configure the core app.
    """

    name = "django_logic"
    verbose_name = _("Workflows")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """
        Validate settings and connect logging, audit and checks.
        """
        from django_logic import audit, checks, conf, log

        conf.validate()
        log.connect()
        audit.connect()
        checks.register()
