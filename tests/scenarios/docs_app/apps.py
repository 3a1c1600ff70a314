"""
Install the app that a page's models belong to.
"""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """
    Configure the app of the pages.
    """

    name = "shop"
    default_auto_field = "django.db.models.BigAutoField"
