"""
Name the app.
"""

from __future__ import annotations

from django.apps import AppConfig


class SeedConfig(AppConfig):
    """
    The kit as a Django app.
    """

    name = "kits.seed"
    label = "bench_seed"
