"""
Configure the app of guarded tables.
"""

from __future__ import annotations

from django.apps import AppConfig


class ConstraintsAppConfig(AppConfig):
    """
    Bind no process: the database is all that guards these models.
    """

    name = "tests.constraints_app"
    label = "constraints_app"
    default_auto_field = "django.db.models.BigAutoField"
