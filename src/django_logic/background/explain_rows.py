"""
What the database alone can say of open rows: how each stands, which transaction holds it, how many stand alike.

What is *not* done here: finding words, or asking who serves a queue and whose session it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from django.db import connections, models
from django.db.models import Case, CharField, Count, Exists, F, Func, Max, Min, OuterRef, Q, Value, When, Window
from django.db.models.functions import Coalesce, Left, RowNumber

from django_logic import conf
from django_logic.background.models import Cancellation, Kind, TransitionMessage
from django_logic.clock import FromNow

__all__ = ["DECLARED_BY", "Alike", "Found", "Standing", "alike", "places", "rows", "standing_rows"]

#: What of a row says which declaration it means.
DECLARED_BY: Final = (
    *("app_label", "model_name", "model_class", "process_class", "owning_process_class"),
    *("transition_name", "kind", "hook_name"),
)
#: What an explanation tells of a row; the keywords may be large and are left where they are.
TOLD: Final = (
    *("id", "instance_id", "process_name", "field_name", "queue_name", *DECLARED_BY),
    *("errors_count", "attempts_started", "max_errors", "run_at", "created", "started_at"),
    *("claim_token", "worker", "backend_pid"),
)
#: How much of an error's text is told.
LONGEST_ERROR = 200
#: A row that is due later than this waits for an operator: about three thousand years, in seconds.
NEVER_DUE = 1e11
#: More keys than this in one statement are not worth their place in it.
MOST_KEYS = 1000

#: The transaction, or the group of them, that holds a row's lock, as text; empty for none. A row keeps the number of
#: whoever locked it last, so it counts only while that one runs. A group's number is looked up only if there can be
#: such a group, since asking for another one is an error.
HOLDER: Final = """
CASE WHEN {row}.xmax <> '0'::xid AND ({row}.xmax IN ({running}) OR EXISTS (
    SELECT FROM PG_GET_MULTIXACT_MEMBERS(CASE WHEN MXID_AGE({row}.xmax) BETWEEN 1 AND (
        SELECT MXID_AGE(datminmxid) FROM pg_database WHERE datname = CURRENT_DATABASE()
    ) THEN {row}.xmax END) member WHERE member.xid IN ({running})
)) THEN {row}.xmax::text ELSE '' END
"""
RUNNING: Final = """
SELECT transactionid FROM pg_locks WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted
"""

#: How many rows come before each of some rows, given the query that numbers all of them.
PLACES: Final = """
SELECT numbered.id, numbered.place - 1 FROM ({numbered}) numbered WHERE numbered.id IN ({keys})
"""


class Standing(StrEnum):
    """
    Name how a row stands, as far as its columns and its lock tell.
    """

    #: Some transaction holds its lock.
    HELD = "held"
    #: Claimed, the lease is over, and this database does not show who holds a lock.
    CLAIMED = "claimed"
    LEASED = "leased"
    SPENT = "spent"
    #: An earlier durable row of its object is open.
    BEHIND = "behind"
    PAUSED = "paused"
    SCHEDULED = "scheduled"
    DUE = "due"


class Holder(Func):
    """
    Stand for the transaction that holds a row's lock, given the row's key; PostgreSQL alone shows it.
    """

    arity = 1
    output_field = CharField()

    def as_sql(self, compiler: Any, connection: Any, *_template: Any, **extra: Any) -> tuple[str, Sequence[Any]]:
        """
        Say "nobody known".
        """
        return "''", ()

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Sequence[Any]]:
        """
        Read it from the row itself and from the list of transactions that run.
        """
        key, parameters = compiler.compile(self.get_source_expressions()[0])
        return HOLDER.format(row=key.rpartition(".")[0], running=RUNNING), parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """
    Hold one open row as it was found, at a time of the database's clock.
    """

    message: TransitionMessage
    standing: Standing
    #: The transaction that holds it, empty for none.
    holder: str
    #: The earlier durable row that has to end first.
    blocker: int | None
    is_cancelled: bool
    error: str
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """
    Count the open rows that stand alike: one queue, one declaration, one standing.
    """

    queue: str
    standing: Standing
    holder: str
    is_claimed: bool
    session: int | None
    declared_by: tuple[str, ...] = field(repr=False)
    count: int
    oldest: datetime
    now: datetime

    @property
    def message(self) -> TransitionMessage:
        """
        Return a row of its kind, for looking up the declaration; it has no key and is stored nowhere.
        """
        return TransitionMessage(**dict(zip(DECLARED_BY, self.declared_by, strict=True)))


def attempts_allowed() -> Coalesce:
    """
    Return how many attempts a row may spend.
    """
    return Coalesce("max_errors", Value(conf.max_errors()))


def earlier_rows(alias: str) -> models.QuerySet[TransitionMessage]:
    """
    Return the durable rows of the same object and process that have to end before a durable one may begin.
    """
    return (
        TransitionMessage.objects.using(alias)
        .open()
        .exclude(kind=Kind.TRANSITION)
        .filter(
            app_label=OuterRef("app_label"),
            model_name=OuterRef("model_name"),
            instance_id=OuterRef("instance_id"),
            process_name=OuterRef("process_name"),
            id__lt=OuterRef("id"),
        )
        .filter(errors_count__lt=attempts_allowed(), run_at__lt=FromNow(NEVER_DUE))
    )


def standing_of(alias: str) -> Case:
    """
    Return the expression that says how a row stands; what is said first wins.
    """
    is_claimed, is_waiting = Q(claim_token__isnull=False), Q(run_at__gt=FromNow())
    is_durable, has_note = ~Q(kind=Kind.TRANSITION), Q(last_error_message__startswith="[deferred]")
    has_failed = Q(errors_count__gt=0) & ~Q(last_error_message__startswith="[snoozed]")
    is_postgresql = connections[alias].vendor == "postgresql"
    return Case(
        *([When(~Q(holder=""), then=Value(Standing.HELD.value))] if is_postgresql else []),
        *([] if is_postgresql else [When(is_claimed & ~is_waiting, then=Value(Standing.CLAIMED.value))]),
        When(is_claimed & is_waiting, then=Value(Standing.LEASED.value)),
        When(Q(attempts_started__gte=attempts_allowed()), then=Value(Standing.SPENT.value)),
        When(Q(run_at__gt=FromNow(NEVER_DUE)), then=Value(Standing.SPENT.value)),
        When(is_durable & Exists(earlier_rows(alias)), then=Value(Standing.BEHIND.value)),
        When(is_waiting & (has_failed | has_note), then=Value(Standing.PAUSED.value)),
        When(is_waiting, then=Value(Standing.SCHEDULED.value)),
        default=Value(Standing.DUE.value),
        output_field=CharField(),
    )


def standing_rows(
    alias: str, queues: Sequence[str] | None = None, pks: Iterable[int] | None = None
) -> models.QuerySet[TransitionMessage]:
    """
    Return the open rows with ``holder`` and ``standing``, of these queues and with these keys, or of all.
    """
    found: models.QuerySet[TransitionMessage] = TransitionMessage.objects.using(alias).open().order_by()
    if queues is not None:
        found = found.filter(queue_name__in=queues)
    if pks is not None:
        found = found.filter(pk__in=list(pks))
    return found.annotate(holder=Holder("pk")).annotate(standing=standing_of(alias))


def rows(
    alias: str, queues: Sequence[str] | None, pks: Iterable[int] | None = None, limit: int | None = None
) -> list[Found]:
    """
    Read open rows, the oldest first, at most so many.
    """
    first = earlier_rows(alias).order_by("id").values("id")[:1]
    blocker = Case(When(standing=Standing.BEHIND.value, then=models.Subquery(first)))
    asked = Exists(Cancellation.objects.using(alias).filter(message_id=OuterRef("pk")))
    query = standing_rows(alias, queues, pks).annotate(
        blocker=blocker, is_cancelled=asked, error=Left("last_error_message", LONGEST_ERROR), now=FromNow()
    )
    more = ("standing", "holder", "blocker", "is_cancelled", "error", "now")
    found = query.order_by("created", "id").values(*dict.fromkeys((*TOLD, *more)))
    return [as_found(values, more) for values in (found if limit is None else found[:limit])]


def as_found(values: dict[str, Any], names: Sequence[str]) -> Found:
    """
    Part what belongs to the row from what was found out about it.
    """
    more = {name: values.pop(name) for name in names}
    more["standing"], more["is_cancelled"] = Standing(more["standing"]), bool(more["is_cancelled"])
    return Found(message=TransitionMessage(**values), **more)


def alike(alias: str, queues: Sequence[str] | None = None) -> list[Alike]:
    """
    Count the open rows by how they stand, in one query.
    """
    is_held = Q(standing__in=[Standing.HELD.value, Standing.CLAIMED.value])
    query = standing_rows(alias, queues).annotate(
        session=Case(When(is_held, then=F("backend_pid"))),
        is_claimed=Case(When(is_held & Q(claim_token__isnull=False), then=Value(1)), default=Value(0)),
    )
    keys = ("queue_name", "standing", "holder", "is_claimed", "session")
    counted = query.values(*keys, *DECLARED_BY).annotate(count=Count("pk"), oldest=Min("created"), now=Max(FromNow()))
    return [
        Alike(
            queue=values["queue_name"],
            standing=Standing(values["standing"]),
            holder=values["holder"],
            is_claimed=bool(values["is_claimed"]),
            session=values["session"],
            declared_by=tuple(values[name] for name in DECLARED_BY),
            count=values["count"],
            oldest=values["oldest"],
            now=values["now"],
        )
        for values in counted
    ]


def places(alias: str, queues: Iterable[str], pks: Sequence[int]) -> dict[int, int]:
    """
    Count for each of these rows that are due how many a worker of their queue claims first.
    """
    place = Window(RowNumber(), partition_by=F("queue_name"), order_by=[F("priority"), F("run_at"), F("id")])
    due = standing_rows(alias, list(queues)).filter(standing=Standing.DUE.value)
    numbered = due.annotate(place=place).values("id", "place")
    if len(pks) > MOST_KEYS:
        wanted = set(pks)
        return {row["id"]: row["place"] - 1 for row in numbered if row["id"] in wanted}
    sql, parameters = numbered.query.get_compiler(using=alias).as_sql()
    statement = PLACES.format(numbered=sql, keys=", ".join(["%s"] * len(pks)))
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, [*parameters, *pks])
        return dict(cursor.fetchall())
