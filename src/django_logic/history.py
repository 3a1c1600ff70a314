"""
Reading history: querysets over the records. The figures themselves are worked out in `django_logic.reports`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.query import ModelIterable

from django_logic import reports
from django_logic.records import about
from django_logic.stays import stays_in
from django_logic.subject import Column, instance_key

__all__ = ["HistoryQuerySet", "RecordQuerySet"]

#: How many records of an ``iterator()`` share one look at the users.
CHUNK = 2000


class RecordQuerySet(models.QuerySet[Any]):
    """
    Query records by the object they speak of.
    """

    _load_actors = False

    def of(self, column: Column, instance: models.Model) -> RecordQuerySet:
        """
        Return the records of one object in one process, oldest first.
        """
        return self.filter(**about(column, instance_key(column, instance))).order_by("id")

    def with_actors(self) -> RecordQuerySet:
        """
        Load the actors of the whole result in one query when it is read, one for each chunk of an ``iterator()``.

        Changes nothing for ``values()``, counts and aggregates, which have no records to hang an actor on.
        """
        clone = self.all()
        clone._load_actors = True
        return clone

    def iterator(self, chunk_size: int | None = None) -> Iterator[Any]:
        """
        Stream the result; with actors, a chunk at a time.
        """
        rows = super().iterator(chunk_size=chunk_size)
        return with_actors_attached(rows, chunk_size or CHUNK) if self._attaches() else rows

    async def aiterator(self, chunk_size: int = CHUNK) -> AsyncIterator[Any]:
        """
        Stream the result in async code; with actors, a chunk at a time.
        """
        size, chunk = chunk_size if self._attaches() else 1, []
        async for record in super().aiterator(chunk_size=chunk_size):
            chunk.append(record)
            if len(chunk) == size:
                for ready in await self._ready(chunk):
                    yield ready
                chunk = []
        for ready in await self._ready(chunk):
            yield ready

    async def _ready(self, chunk: list[Any]) -> list[Any]:
        if chunk and self._attaches():
            await sync_to_async(attach_actors)(chunk)
        return chunk

    def _attaches(self) -> bool:
        return self._load_actors and issubclass(self._iterable_class, ModelIterable)

    def _clone(self) -> RecordQuerySet:
        clone: RecordQuerySet = super()._clone()  # type: ignore[misc]
        clone._load_actors = self._load_actors
        return clone

    def _fetch_all(self) -> None:
        fresh = self._result_cache is None
        super()._fetch_all()
        if fresh and self._attaches():
            attach_actors(self._result_cache or ())

    @staticmethod
    def actor_of(record: Any) -> models.Model | None:
        """
        Load the user of one record, once.
        """
        if not hasattr(record, "_actor"):
            record._actor = users_by_key({record.actor_id}).get(record.actor_id)
        loaded: models.Model | None = record._actor
        return loaded


def with_actors_attached(rows: Iterator[Any], size: int) -> Iterator[Any]:
    """
    Yield records with their actors, loading those of ``size`` records at a time.
    """
    while chunk := list(islice(rows, size)):
        attach_actors(chunk)
        yield from chunk


def attach_actors(records: Iterable[Any]) -> None:
    """
    Load the users these records name in one query and hang each on its record.

    A record read by ``only()`` without its actor is left alone: asking it would cost a query each.
    """
    told = [record for record in records if "actor_id" not in record.get_deferred_fields()]
    found = users_by_key({record.actor_id for record in told})
    for record in told:
        record._actor = found.get(record.actor_id)


def users_by_key(texts: set[str]) -> dict[str, models.Model]:
    """
    Return the users that exist under these keys, in one query; none in a project without a user model.
    """
    try:
        users = apps.get_model(settings.AUTH_USER_MODEL)
    except (LookupError, ValueError):
        return {}
    keys = [key for text in texts if text and (key := as_key(users, text)) is not None]
    return {str(user.pk): user for user in users._base_manager.filter(pk__in=keys)} if keys else {}


def as_key(users: type[models.Model], text: str) -> Any:
    """
    Return the text as a primary key of the user model, None where it can't be one since the key's type changed.
    """
    field = users._meta.pk
    try:
        key = field.to_python(text)
        field.run_validators(key)
    except (ValidationError, ValueError, TypeError):
        return None
    # Django 4.2 hands SQLite numbers that no column of it holds.
    return None if isinstance(key, int) and key.bit_length() > 63 else key


class HistoryQuerySet(RecordQuerySet):
    """
    Query moves, and how long objects stay where they moved to.

    The model may be a proxy or a child of the one that owns the column: they share its history, and the answer covers
    all of it. ``process_name`` is needed only where the model has several. A state may be a member of an enum.
    Filters set before narrow the moves by which objects entered: ``filter(actor_label="warehouse").stuck(...)``.
    Raises: ValueError for an unbound model, an unknown process or state, or times that can't be meant.
    """

    def time_in_state(
        self,
        model: type[models.Model],
        state: Any,
        *,
        process_name: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> reports.TimeInState:
        """
        Work out how long objects stay in a state, in the database, in two queries.

        Covers the stays that began from ``since`` on and before ``until``. Source: docs/reference/history.md

        Example::

            StatusChange.objects.time_in_state(Order, state="processing").p95
        """
        return reports.time_in_state(stays_in(self, model, state, process_name).begun(since, until))

    def durations(
        self,
        model: type[models.Model],
        state: Any,
        *,
        process_name: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Any:
        """
        Return the finished stays, oldest first, each as the move by which the object entered.

        Shape: a queryset of StatusChange with ``entered_at``, ``left_at`` and ``duration``, to filter, group or stream.

        Example::

            hours = StatusChange.objects.durations(Order, state="processing").values_list("instance_id", "duration")
        """
        return reports.finished(stays_in(self, model, state, process_name).begun(since, until))

    def stuck(
        self, model: type[models.Model], state: Any, *, longer_than: timedelta, process_name: str | None = None
    ) -> Any:
        """
        Return the moves by which objects entered a state they have been in for longer than this, oldest first.

        Objects that were deleted, or whose column was moved away past the library, are not stuck and not listed.

        Example::

            StatusChange.objects.stuck(Order, "processing", longer_than=timedelta(days=2))
        """
        return reports.stuck(stays_in(self, model, state, process_name), longer_than)
