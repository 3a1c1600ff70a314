"""
What the database alone can say of open rows: how each stands, which transaction holds it, how many stand alike.

What is *not* done here: finding words, or asking who serves a queue and whose session it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from django.db import connections, models
from django.db.models import Case, CharField, Exists, F, Func, OuterRef, Q, Value, When, Window
from django.db.models.functions import Cast, Coalesce, Concat, Left, RowNumber

from django_logic import conf
from django_logic.background.models import Cancellation, Kind, TransitionMessage, never
from django_logic.clock import FromNow

__all__ = ["DECLARED_BY", "Alike", "Found", "Standing", "alike", "places", "rows", "standing_rows", "unheld"]

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
#: So many rows of a queue are numbered; those behind them are far behind.
MOST_AHEAD = 10_000

#: Who locked a row last, as text: a transaction, or a group of them that shared the lock; empty for nobody. It stays
#: when they are over, so it says something only of those that run.
LOCKER: Final = "CASE WHEN {row}.xmax <> '0'::xid THEN {row}.xmax::text ELSE '' END"

#: How many rows stand alike, and the oldest of them, given the query that says how each stands.
ALIKE: Final = """
SELECT standing, MIN(id), COUNT(*) FROM ({standing}) alike GROUP BY queue_name, standing, {declared_by}
"""
#: Which rows come first in each queue, given a query for each that numbers them.
FIRST: Final = "SELECT id, place FROM ({numbered}) queue_{number}"
#: A slice of everything. It keeps the planner from working out a standing again for every place that names it.
EVERYTHING: Final = slice(2**63 - 1)


class Standing(StrEnum):
    """
    Name how a row stands, as far as its columns and its lock tell.
    """

    #: Claimed, and the lease is over: an attempt holds its lock, or died.
    CLAIMED = "claimed"
    LEASED = "leased"
    SPENT = "spent"
    #: An earlier durable row of its object is open.
    BEHIND = "behind"
    PAUSED = "paused"
    SCHEDULED = "scheduled"
    DUE = "due"


class Locker(Func):
    """
    Stand for who locked a row last, given the row's key; PostgreSQL alone shows it.
    """

    arity = 1
    output_field = CharField()

    def as_sql(
        self, compiler: Any, connection: Any, *_template: Any, **extra: Any
    ) -> tuple[str, tuple[str | int, ...]]:
        """
        Say "nobody known".
        """
        return "''", ()

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Sequence[Any]]:
        """
        Read it from the row itself.
        """
        key, parameters = compiler.compile(self.get_source_expressions()[0])
        return LOCKER.format(row=key.rpartition(".")[0]), parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """
    Hold one open row as it was found, at a time of the database's clock.
    """

    message: TransitionMessage
    standing: Standing
    #: Who locked it last, empty for nobody.
    locker: str
    is_claimed: bool
    now: datetime
    #: The earlier durable row that has to end first.
    blocker: int | None = None
    is_cancelled: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """
    Count the open rows that stand alike: one queue, one declaration, one standing; with the oldest of them.
    """

    standing: Standing
    count: int
    oldest: Found


#: What tells the holder of a row from others, where there may be one: who locked it, which session claimed it.
HOLDER: Final = Case(
    When(
        ~Q(locker="") | Q(claim_token__isnull=False, run_at__lte=FromNow()),
        then=Concat(
            Value(" "),
            "locker",
            Value(" "),
            Coalesce(Cast("backend_pid", CharField()), Value("")),
            Case(When(claim_token__isnull=False, then=Value(" claimed")), default=Value("")),
            output_field=CharField(),
        ),
    ),
    default=Value(""),
    output_field=CharField(),
)


def unheld(found: Found) -> Standing:
    """
    Say how a claimed row stands whose attempt is gone; any other row stands as it was found.
    """
    if not found.is_claimed:
        return found.standing
    is_spent = found.message.attempts_started >= found.message.attempts_allowed
    return Standing.SPENT if is_spent else Standing.DUE


def attempts_allowed() -> Coalesce:
    """
    Return how many attempts a row may spend.
    """
    return Coalesce("max_errors", Value(conf.max_errors()))


def standing_of(alias: str) -> Case:
    """
    Return the expression that says how a row stands; what is said first wins.
    """
    is_claimed, is_waiting = Q(claim_token__isnull=False), Q(run_at__gt=FromNow())
    is_durable = ~Q(kind=Kind.TRANSITION)
    is_put_back = Q(last_error_message__startswith="[snoozed]") | Q(last_error_message__startswith="[deferred]")
    return Case(
        When(is_claimed & is_waiting, then=Value(Standing.LEASED.value)),
        When(is_claimed, then=Value(Standing.CLAIMED.value)),
        When(Q(attempts_started__gte=attempts_allowed()), then=Value(Standing.SPENT.value)),
        When(Q(run_at__gte=never()), then=Value(Standing.SPENT.value)),
        When(is_durable & Exists(TransitionMessage.objects.using(alias).ahead()), then=Value(Standing.BEHIND.value)),
        When(is_waiting & Q(errors_count__gt=0) & ~is_put_back, then=Value(Standing.PAUSED.value)),
        When(is_waiting, then=Value(Standing.SCHEDULED.value)),
        default=Value(Standing.DUE.value),
        output_field=CharField(),
    )


def standing_rows(
    alias: str, queues: Sequence[str] | None = None, pks: Iterable[int] | None = None
) -> models.QuerySet[TransitionMessage]:
    """
    Return the open rows with ``locker`` and ``standing``, of these queues and with these keys, or of all.
    """
    found = open_rows(alias, queues)
    if pks is not None:
        found = found.filter(pk__in=list(pks))
    return found.annotate(locker=Locker("pk"), standing=standing_of(alias))


def open_rows(alias: str, queues: Sequence[str] | None) -> models.QuerySet[TransitionMessage]:
    """
    Return the rows of these queues, or of all, that have not ended, in no order.
    """
    found: models.QuerySet[TransitionMessage] = TransitionMessage.objects.using(alias).open().order_by()
    return found if queues is None else found.filter(queue_name__in=queues)


def rows(
    alias: str, queues: Sequence[str] | None = None, pks: Iterable[int] | None = None, limit: int | None = None
) -> list[Found]:
    """
    Read open rows, the oldest first, at most so many.
    """
    first = TransitionMessage.objects.using(alias).ahead().order_by("id").values("id")[:1]
    blocker = Case(When(standing=Standing.BEHIND.value, then=models.Subquery(first)))
    asked = Exists(Cancellation.objects.using(alias).filter(message_id=OuterRef("pk")))
    query = standing_rows(alias, queues, pks).annotate(
        blocker=blocker, is_cancelled=asked, error=Left("last_error_message", LONGEST_ERROR), now=FromNow()
    )
    more = ("standing", "locker", "blocker", "is_cancelled", "error", "now")
    found = query.order_by("id").values(*dict.fromkeys((*TOLD, *more)))
    return [as_found(values, more) for values in (found if limit is None else found[:limit])]


def as_found(values: dict[str, Any], names: Sequence[str]) -> Found:
    """
    Part what belongs to the row from what was found out about it.
    """
    more = {name: values.pop(name) for name in names}
    more["standing"], more["is_cancelled"] = Standing(more["standing"]), bool(more["is_cancelled"])
    return Found(message=TransitionMessage(**values), is_claimed=values["claim_token"] is not None, **more)


def alike(alias: str, queues: Sequence[str] | None = None) -> list[Alike]:
    """
    Count the open rows by how they stand.
    """
    standing = open_rows(alias, queues).annotate(locker=Locker("pk"))
    standing = standing.annotate(standing=Concat(standing_of(alias), HOLDER, output_field=CharField()))
    sql, parameters = compiled(standing.values("id", "queue_name", "standing", *DECLARED_BY)[EVERYTHING], alias)
    with connections[alias].cursor() as cursor:
        cursor.execute(ALIKE.format(standing=sql, declared_by=", ".join(DECLARED_BY)), parameters)
        counted = cursor.fetchall()
    # Whatever has become of the oldest rows meanwhile, they say what the others are.
    rows_by_key = TransitionMessage.objects.using(alias).filter(pk__in=[pk for _how, pk, _count in counted])
    oldest = {values["id"]: values for values in rows_by_key.order_by().annotate(now=FromNow()).values(*TOLD, "now")}
    return [as_alike(how, dict(oldest[pk]), count) for how, pk, count in counted if pk in oldest]


def as_alike(how: str, oldest: dict[str, Any], count: int) -> Alike:
    """
    Read how rows stand, and put it in the place of what the oldest of them says by now.
    """
    standing, locker, session, claim = (*how.split(" "), "", "", "")[:4]
    now = oldest.pop("now")
    message = TransitionMessage(**{**oldest, "backend_pid": int(session) if session else None})
    found = Found(message=message, standing=Standing(standing), locker=locker, is_claimed=bool(claim), now=now)
    return Alike(standing=found.standing, count=count, oldest=found)


def places(alias: str, queues: Iterable[str], most: int | None = None) -> dict[int, int]:
    """
    Number the rows of each queue that are due, in the order in which a worker claims them, from 0; at most so many,
    `MOST_AHEAD` if nothing is said.
    """
    order = (F("priority"), F("run_at"), F("id"))
    place = Window(RowNumber(), order_by=[*order]) - 1
    statements, parameters = [], []
    for number, queue in enumerate(queues):
        due = standing_rows(alias, [queue]).filter(Q(standing=Standing.DUE.value))
        sql, own = compiled(
            due.annotate(place=place).order_by(*order).values("id", "place")[: most or MOST_AHEAD], alias
        )
        statements.append(FIRST.format(numbered=sql, number=number))
        parameters += own
    if not statements:
        return {}
    with connections[alias].cursor() as cursor:
        cursor.execute(" UNION ALL ".join(statements), parameters)
        return dict(cursor.fetchall())


def compiled(query: models.QuerySet[Any, Any], alias: str) -> tuple[str, list[Any]]:
    """
    Return a query as text and parameters.
    """
    sql, parameters = query.query.get_compiler(using=alias).as_sql()
    return sql, list(parameters)
