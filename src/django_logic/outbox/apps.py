"""
The app of events: its rows, its part in every move.
"""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class OutboxConfig(AppConfig):
    """
    Configure the app of events.
    """

    name = "django_logic.outbox"
    label = "django_logic_outbox"
    verbose_name = _("Events")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """
        Take part in every move, and find the subscribers of the project's apps.
        """
        from django_logic import conf, extension
        from django_logic.outbox import checks, options
        from django_logic.outbox.events import rows_of
        from django_logic.outbox.relay import running
        from django_logic.outbox.relay.wake import wake

        options.register()
        conf.validate()
        extension.register_contributor(rows_of, after_write=wake)
        extension.register_companion("relay", running.accompany, running.check, running.sessions)
        checks.register()
        autodiscover_modules("subscribers")
