"""
Install the lesson's models; tables bind themselves, so there is nothing to do in ready().
"""

from __future__ import annotations

from django.apps import AppConfig


class SeedConfig(AppConfig):
    """
    Configure the app of the lesson.
    """

    name = "tests.scenarios.seed_app"
    label = "seed"
    default_auto_field = "django.db.models.BigAutoField"
