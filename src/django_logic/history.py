"""
Reading history: querysets over the records. Figures about stays live in `django_logic.reports`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.db import models

from django_logic.subject import Column, column_of, instance_key

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["HistoryQuerySet", "RecordQuerySet"]


class RecordQuerySet(models.QuerySet[Any]):
    """
    Query records by the object they speak of.
    """

    _load_actors = False

    def of(self, column: Column, instance: models.Model) -> RecordQuerySet:
        """
        Return the records of one object in one process, oldest first.
        """
        return self.filter(
            app_label=column.app_label,
            model_name=column.model_name,
            instance_id=instance_key(column, instance),
            process_name=column.process_name,
        )

    def with_actors(self) -> RecordQuerySet:
        """
        Load the actors of the whole result in one query when it is read.
        """
        clone = self._chain()
        clone._load_actors = True
        return clone

    def _clone(self) -> RecordQuerySet:
        clone: RecordQuerySet = super()._clone()  # type: ignore[misc]
        clone._load_actors = self._load_actors
        return clone

    def _fetch_all(self) -> None:
        fresh = self._result_cache is None
        super()._fetch_all()  # type: ignore[misc]
        if fresh and self._load_actors:
            attach_actors(self._result_cache or ())

    @staticmethod
    def actor_of(record: Any) -> models.Model | None:
        """
        Load the user of one record, once.
        """
        if not hasattr(record, "_actor"):
            attach_actors([record])
        loaded: models.Model | None = record._actor
        return loaded


def attach_actors(records: Iterable[Any]) -> None:
    """
    Load the users these records name in one query and hang each on its record.
    """
    users = user_model()
    wanted = {record.actor_id for record in records if getattr(record, "actor_id", "")}
    keys = [key for key in (as_key(users, text) for text in wanted) if key is not None]
    found = {str(user.pk): user for user in users._base_manager.filter(pk__in=keys)} if keys else {}
    for record in records:
        record._actor = found.get(record.actor_id)


def as_key(users: type[models.Model], text: str) -> Any:
    """
    Return the text as a primary key of the user model, None where it can't be one any more.
    """
    try:
        return users._meta.pk.to_python(text)
    except Exception:  # the user model's key type changed since the record was written
        return None


class HistoryQuerySet(RecordQuerySet):
    """
    Query moves.
    """
