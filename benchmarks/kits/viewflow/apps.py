"""
Name the app.
"""

from __future__ import annotations

from django.apps import AppConfig


class ViewflowConfig(AppConfig):
    """
    The kit as a Django app.
    """

    name = "kits.viewflow"
    label = "bench_viewflow"
