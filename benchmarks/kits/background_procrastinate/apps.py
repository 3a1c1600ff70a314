"""
Name the app, so that procrastinate finds its tasks.
"""

from __future__ import annotations

from django.apps import AppConfig


class ProcrastinateKitConfig(AppConfig):
    """
    The kit as a Django app; procrastinate imports the module ``tasks`` of every app.
    """

    name = "kits.background_procrastinate"
    label = "bench_procrastinate"
