"""
Finding the history of an object without importing the models, which needs the apps loaded.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps

from django_logic.subject import Column

__all__ = ["history_model", "history_of", "newest_sequence"]


def history_model() -> Any:
    """
    Return StatusChange.
    """
    return apps.get_model("django_logic", "StatusChange")


def history_of(column: Column, key: str, alias: str) -> Any:
    """
    Return the history of one object in one process, in no order.
    """
    return (
        history_model()
        .objects.using(alias)
        .filter(
            app_label=column.app_label,
            model_name=column.model_name,
            instance_id=key,
            process_name=column.process_name,
        )
    )


def newest_sequence(column: Column, key: str, alias: str) -> int:
    """
    Return the newest sequence of an object, 0 before any move.
    """
    newest = history_of(column, key, alias).order_by("-sequence").values_list("sequence", flat=True)
    return int(newest.first() or 0)
