"""
Name the app.
"""

from __future__ import annotations

from django.apps import AppConfig


class FsmConfig(AppConfig):
    """
    The kit as a Django app.
    """

    name = "kits.fsm"
    label = "bench_fsm"
