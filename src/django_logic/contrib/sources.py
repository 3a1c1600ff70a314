"""
Where figures come from: the apps of this library that are installed, each asked only where its tables are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from django.apps import apps
from django.db import router
from django.utils.module_loading import import_string

if TYPE_CHECKING:
    from django_logic.background.metrics import Snapshot
    from django_logic.outbox.metrics import DestinationFigures

__all__ = ["BACKGROUND", "EVENTS", "are_installed", "ended_rows", "of_background", "of_events"]

#: Named, since neither has to be installed, and a module with models of an app that is not can't be imported.
BACKGROUND, EVENTS = "django_logic.background", "django_logic.outbox"


def are_installed(app: str) -> bool:
    """
    Tell whether a project has figures of this kind.
    """
    return apps.is_installed(app)


def of_background(alias: str, *, with_ended: bool = True) -> Snapshot | None:
    """
    Take the figures of background work; None where there is none.
    """
    if not are_at(BACKGROUND, alias):
        return None
    taken: Snapshot = import_string(f"{BACKGROUND}.metrics.snapshot")(alias, with_ended=with_ended)
    return taken


def ended_rows(alias: str) -> Mapping[str, int]:
    """
    Count by outcome the background rows that have ended; empty where there are none.
    """
    if not are_at(BACKGROUND, alias):
        return {}
    counted = import_string(f"{BACKGROUND}.metrics.count_ended")(alias)
    return {str(state): count for state, count in counted.items()}


def of_events(alias: str) -> Sequence[DestinationFigures]:
    """
    Take the figures of each destination; none where there are no events.
    """
    if not are_at(EVENTS, alias):
        return ()
    taken: Sequence[DestinationFigures] = import_string(f"{EVENTS}.metrics.figures")(alias)
    return taken


def are_at(app: str, alias: str) -> bool:
    """
    Tell whether an app is installed, and its tables are allowed on a database.
    """
    return are_installed(app) and bool(router.allow_migrate(alias, app.replace(".", "_")))
