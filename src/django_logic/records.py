"""
Finding the history of an object without importing the models, which needs the apps loaded.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db import connections

from django_logic.subject import Column

__all__ = ["about", "history_model", "history_of", "may_read_old_snapshot", "newest_sequence"]


def history_model() -> Any:
    """
    Return StatusChange.
    """
    return apps.get_model("django_logic", "StatusChange")


def about(column: Column, key: str) -> dict[str, str]:
    """
    Return the filter that finds what is recorded of one object in one process.
    """
    return {
        "app_label": column.app_label,
        "model_name": column.model_name,
        "instance_id": key,
        "process_name": column.process_name,
    }


def history_of(column: Column, key: str, alias: str) -> Any:
    """
    Return the history of one object in one process, in no order.
    """
    return history_model().objects.using(alias).filter(**about(column, key))


def newest_sequence(column: Column, key: str, alias: str, *, is_locking: bool = False) -> int:
    """
    Return the newest sequence of an object, 0 before any move.

    Transaction: a locking read needs one; it sees what is committed now, whatever the transaction's snapshot.
    """
    newest = history_of(column, key, alias).order_by("-sequence").values_list("sequence", flat=True)
    if is_locking:
        newest = newest.select_for_update()
    return int(newest.first() or 0)


def may_read_old_snapshot(alias: str) -> bool:
    """
    Tell whether a plain read may miss what is committed although the object's row is locked.

    So it is on MySQL and MariaDB above READ COMMITTED; PostgreSQL refuses the lock instead, SQLite the write.
    """
    connection = connections[alias]
    return connection.vendor == "mysql" and getattr(connection, "isolation_level", None) != "read committed"
