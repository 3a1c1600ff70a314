"""
Which stays a question is about, as querysets over history: the moves in, the moves out, and who is there now.

A stay begins with a move into the state and ends with the next move out of it; a move from the state to itself does
neither. What history does not know is left out: a stay that began at a birth nobody recorded, and one that ended past
the library (`dl_verify` finds those). Finished stays of deleted objects count, open ones do not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connections, models
from django.db.models import Case, F, Func, OuterRef, Q, Subquery, Value, When
from django.db.models.functions import Cast, Concat, Substr
from django.db.models.lookups import Exact
from django.utils import timezone

from django_logic import births
from django_logic.machines import Machine, machine_of
from django_logic.states import as_text

__all__ = ["Stays", "stays_in"]


class Spelling(Func):
    """
    Compare text letter by letter where the database's collation takes "Draft" for "draft", or two collations meet.
    """

    arity = 1
    template = "%(expressions)s"
    output_field = models.CharField()

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """
        Name the one collation that compares letter by letter, whatever those of the two sides are.
        """
        template = "CONVERT(%(expressions)s USING utf8mb4) COLLATE utf8mb4_bin"
        return self.as_sql(compiler, connection, template=template, **context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stays:
    """
    Name the stays a question is about: in which state of which machine, begun when, on which database.
    """

    records: models.QuerySet[Any]
    machine: Machine
    state: str | None
    since: datetime | None = None
    until: datetime | None = None

    def begun(self, since: datetime | None, until: datetime | None) -> Stays:
        """
        Narrow to the stays that began from ``since`` on and before ``until``.
        """
        for name, moment in (("since", since), ("until", until)):
            if moment is not None and timezone.is_naive(moment) == settings.USE_TZ:
                kind = "with a time zone, since USE_TZ is on" if settings.USE_TZ else "naive, since USE_TZ is off"
                raise ValueError(f"{name}= must be {kind}; found {moment!r}.")
        if since is not None and until is not None and since > until:
            raise ValueError(f"since= must not be later than until=; found {since} and {until}.")
        return replace(self, since=since, until=until)

    @property
    def entries(self) -> models.QuerySet[Any]:
        """
        Return the moves by which objects entered.
        """
        column, alias = self.machine.column, self.records.db
        entered = holds("to_state", self.state, alias) & ~holds("from_state", self.state, alias)
        if self.state is None:
            entered |= holds("to_state", None, alias) & Q(action=births.ACTION)
        if self.since is not None:
            entered &= Q(occurred_at__gte=self.since)
        if self.until is not None:
            entered &= Q(occurred_at__lt=self.until)
        return self.records.filter(
            entered, app_label=column.app_label, model_name=column.model_name, process_name=column.process_name
        )

    @property
    def leavings(self) -> models.QuerySet[Any]:
        """
        Return the moves after an outer entry, nearest first, without those from the state to itself.
        """
        column, alias = self.machine.column, self.records.db
        staying = holds("from_state", self.state, alias) & holds("to_state", self.state, alias)
        later: models.QuerySet[Any] = models.QuerySet(model=self.records.model, using=alias).filter(
            ~staying,
            app_label=column.app_label,
            model_name=column.model_name,
            process_name=column.process_name,
            instance_id=OuterRef("instance_id"),
            sequence__gt=OuterRef("sequence"),
        )
        return later.order_by("sequence")

    @property
    def left_at(self) -> Subquery:
        """
        Return when an entry's stay ended: null if it goes on, or ended past the library.
        """
        ended = Case(When(holds("from_state", self.state, self.records.db), then=F("occurred_at")))
        return Subquery(self.leavings.annotate(left_at=ended).values("left_at")[:1])

    @property
    def unfinished(self) -> models.QuerySet[Any]:
        """
        Return the entries of the stays that go on.
        """
        # Looked up for each entry: as NOT EXISTS, PostgreSQL may join all moves with all, while statistics are stale.
        next_move = Subquery(self.leavings.values("sequence")[:1])
        here = is_here(self.machine, self.state, self.records.db)
        found: models.QuerySet[Any] = self.entries.alias(next_move=next_move).filter(here, next_move__isnull=True)
        return found


def stays_in(
    records: models.QuerySet[Any], model: type[models.Model], state: Any, process_name: str | None = None
) -> Stays:
    """
    Name all stays of a model's objects in a state.

    Raises: ValueError for an unbound model, or a process or state it does not have.
    """
    machine = machine_of(model, process_name)
    text = as_text(state)
    if text not in machine.states:
        moved = records.model._default_manager.using(records.db).filter(
            app_label=machine.column.app_label,
            model_name=machine.column.model_name,
            process_name=machine.column.process_name,
        )
        # A state that was removed from the code keeps its past.
        if not moved.filter(holds("to_state", text, records.db)).exists():
            raise ValueError(machine.unknown_state(state))
    return Stays(records=records, machine=machine, state=text)


def holds(name: str, text: str | None, alias: str) -> Q:
    """
    Build the condition that a column of history holds this very state.
    """
    if text is None:
        return Q(**{f"{name}__isnull": True})
    same = Q(**{name: text})
    if connections[alias].vendor == "mysql":
        same &= Q(Exact(Spelling(F(name)), Value(text)))
    return same


def is_here(machine: Machine, state: str | None, alias: str) -> Q:
    """
    Build the condition that the record's object exists and is in the state by its column.

    Empty, so always true, where the key is of a type whose text the database can't be asked for.
    """
    key = key_as_text(machine.column.owner._meta.pk, alias)
    if key is None:
        return Q()
    column = machine.column
    owners: models.QuerySet[Any] = models.QuerySet(model=column.owner, using=alias).order_by()
    try:
        value = machine.states[state] if state in machine.states else column.field.to_python(state)
    except ValidationError:  # a state that was removed from the code, in a column that can't hold it any more
        return Q(pk__in=())
    name = column.field.attname
    here = owners.filter(**({f"{name}__isnull": True} if value is None else {name: value}))
    return Q(instance_id__in=here.values_list(key))


def key_as_text(field: Any, alias: str) -> Any:
    """
    Return the primary key as history spells it, None for a key of a type this can't be told of.
    """
    while field.remote_field:
        field = field.target_field
    if hasattr(field, "from_db_value"):
        return None
    if isinstance(field, (models.CharField, models.TextField, models.IntegerField)):
        return Spelling(Cast("pk", models.TextField()))
    if isinstance(field, models.UUIDField):
        return Spelling(
            Cast("pk", models.TextField()) if connections[alias].features.has_native_uuid_field else dashed()
        )
    return None


def dashed() -> Concat:
    """
    Put the dashes into a UUID that is stored as 32 digits.
    """
    parts: list[Any] = []
    for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12)):
        parts += [Value("-"), Substr(Cast("pk", models.CharField(max_length=32)), start, length)]
    return Concat(*parts[1:], output_field=models.CharField())
