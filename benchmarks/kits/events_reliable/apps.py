"""
Name the app, whose handlers are found by the library.
"""

from __future__ import annotations

from django.apps import AppConfig


class ReliableConfig(AppConfig):
    """
    The kit as a Django app.
    """

    name = "kits.events_reliable"
    label = "bench_reliable"
