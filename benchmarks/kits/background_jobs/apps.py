"""
Name the app.
"""

from __future__ import annotations

from django.apps import AppConfig


class JobsConfig(AppConfig):
    """
    The shared tables as a Django app.
    """

    name = "kits.background_jobs"
    label = "bench_jobs"
