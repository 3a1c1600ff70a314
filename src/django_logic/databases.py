"""
Connections of processes that live for long.
"""

from __future__ import annotations

from django.db import connections

__all__ = ["close_databases", "own_databases"]


def close_databases() -> None:
    """
    Close every connection and pool, so that no process shares one with another.
    """
    for connection in connections.all(initialized_only=True):
        connection.close()
        if hasattr(connection, "close_pool"):
            connection.close_pool()


def own_databases() -> None:
    """
    Let each connection of this process live as long as it works; a pool would open several for one user.
    """
    for alias in connections:
        facts = connections.settings[alias]
        facts["CONN_MAX_AGE"] = None
        facts["AUTOCOMMIT"] = True
        facts["CONN_HEALTH_CHECKS"] = False
        if "pool" in facts.get("OPTIONS", {}):
            facts["OPTIONS"] = {**facts["OPTIONS"], "pool": False}
