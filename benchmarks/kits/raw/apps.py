"""
Name the app.
"""

from __future__ import annotations

from django.apps import AppConfig


class RawConfig(AppConfig):
    """
    The kit as a Django app.
    """

    name = "kits.raw"
    label = "bench_raw"
