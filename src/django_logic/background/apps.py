"""
The app of background work: its rows, its gate, its checks.
"""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class BackgroundConfig(AppConfig):
    """
    Configure the background app.
    """

    name = "django_logic.background"
    label = "django_logic_background"
    verbose_name = _("Background work")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """
        Stand at the gate of every call of a process that declares background work.
        """
        from django_logic import extension
        from django_logic.background import checks, gate

        extension.register_gate(gate.busy)
        checks.register()
