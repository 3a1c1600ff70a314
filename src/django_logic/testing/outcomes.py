"""
Asserting what a call did to fields and to other rows, and what it told, from fresh reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import models

from django_logic.subject import alias_of
from django_logic.testing.assertions import Assertions
from django_logic.testing.journey import as_list
from django_logic.testing.reading import topics_of

__all__ = ["Outcomes"]


class Outcomes(Assertions):
    """
    Compare fields and rows with what they were.
    """

    def capture(self, instance: models.Model, names: Iterable[str]) -> dict[str, Any]:
        """
        Read these fields from the database, to compare them later.
        """
        wanted = as_list(names, "fields")
        rows = type(instance)._base_manager.using(alias_of(instance)).filter(pk=instance.pk)
        return rows.values(*wanted).get() if wanted else {}  # no names would mean all

    def assert_changed(
        self, instance: models.Model, before: Mapping[str, Any], changes: Mapping[str, tuple[Any, Any]]
    ) -> None:
        """
        Check that these fields went from one value to another since they were captured.
        """
        now = self.capture(instance, list(changes))
        for name, (old, new) in changes.items():
            if (before[name], now[name]) != (old, new):
                raise self.refuse(
                    f"{name} went from {before[name]!r} to {now[name]!r}, expected from {old!r} to {new!r}.", instance
                )

    def assert_unchanged(self, instance: models.Model, before: Mapping[str, Any], names: Iterable[str]) -> None:
        """
        Check that these fields are as they were when they were captured.
        """
        now = self.capture(instance, names)
        if changed := {name: (before[name], value) for name, value in now.items() if before[name] != value}:
            raise self.refuse(f"Changed, and should not have: {changed}.", instance)

    def assert_events(self, instance: models.Model, topics: Iterable[str]) -> None:
        """
        Check the topics of all events that were written about an object, oldest first, whoever has got them.

        Raises: ImproperlyConfigured without the app of events.
        """
        wanted, found = as_list(topics, "topics"), topics_of(instance, self.name_of_process())
        if found != wanted:
            raise self.refuse(f"The events are {found}, expected {wanted}.", instance)

    def assert_related_count(self, rows: Any, count: int) -> None:
        """
        Check how many rows a queryset or a manager finds now.
        """
        found = rows.all().count()
        if found != count:
            raise self.refuse(f"{rows.model._meta.label}: {found} rows, expected {count}.")
