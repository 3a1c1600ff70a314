"""
How long objects stay in a state and who is stuck in it, worked out by the database.

What a stay is, and which stays a question is about, is said in `django_logic.stays`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any, Final

from django.db import connections, models
from django.db.models import ExpressionWrapper, F, Func
from django.utils import timezone

from django_logic.stays import Stays

__all__ = ["TimeInState", "finished", "stuck", "time_in_state"]

#: A slice of everything. It keeps the planner from working each subquery out again for every place that names it.
EVERYTHING: Final = slice(2**63 - 1)

#: The figures of finished stays, given a query of their microseconds. A percentile lies between the two stays around
#: its place, so both are fetched; whole seconds and the rest are summed apart, since SQLite's sums have 64 bits.
FIGURES: Final = """
SELECT COUNT(*), SUM((micros - micros %% 1000000) / 1000000), SUM(micros %% 1000000), MAX(micros),
    MAX(CASE WHEN 2 * (place - 1) <= total - 1 THEN micros END),
    MIN(CASE WHEN 2 * (place - 1) >= total - 1 THEN micros END),
    MAX(CASE WHEN 20 * (place - 1) <= 19 * (total - 1) THEN micros END),
    MIN(CASE WHEN 20 * (place - 1) >= 19 * (total - 1) THEN micros END)
FROM (
    SELECT micros, ROW_NUMBER() OVER (ORDER BY micros) AS place, COUNT(*) OVER () AS total
    FROM ({stays}) AS stay WHERE micros IS NOT NULL
) AS ranked
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeInState:
    """
    Hold how long objects stay in a state: figures of the finished stays, and how many go on.

    ``mean``, ``p50``, ``p95`` and ``max`` are None while no stay has finished. Percentiles are interpolated.
    """

    count: int
    mean: timedelta | None
    p50: timedelta | None
    p95: timedelta | None
    max: timedelta | None
    open: int


class Microseconds(Func):
    """
    Subtract two times exactly: as a whole number on every database.
    """

    arity = 2
    output_field = models.BigIntegerField()

    def as_sql(self, compiler: Any, connection: Any, **context: Any) -> Any:  # type: ignore[override]
        """
        Subtract in the database's own words, which count microseconds on SQLite and MySQL.
        """
        later, earlier = (compiler.compile(expression) for expression in self.get_source_expressions())
        sql, parameters = connection.ops.subtract_temporals("DateTimeField", later, earlier)
        return sql, tuple(parameters)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """
        Turn PostgreSQL's interval into a number.
        """
        sql, parameters = self.as_sql(compiler, connection, **context)
        return f"ROUND(EXTRACT(EPOCH FROM {sql}) * 1000000)::bigint", parameters


def time_in_state(stays: Stays) -> TimeInState:
    """
    Work out the figures.
    """
    measured = stays.entries.order_by().annotate(micros=Microseconds(stays.left_at, F("occurred_at")))
    query = measured.values("micros")[EVERYTHING].query
    sql, parameters = query.get_compiler(using=stays.records.db).as_sql()
    with connections[stays.records.db].cursor() as cursor:
        cursor.execute(FIGURES.format(stays=sql), parameters)
        count, seconds, rest, longest, p50_low, p50_high, p95_low, p95_high = cursor.fetchone()
    still = stays.unfinished.count()
    if not count:
        return TimeInState(count=0, mean=None, p50=None, p95=None, max=None, open=still)
    return TimeInState(
        count=count,
        mean=exactly(Fraction(int(seconds) * 1_000_000 + int(rest), count)),
        p50=between(p50_low, p50_high, Fraction(count - 1, 2)),
        p95=between(p95_low, p95_high, Fraction(19 * (count - 1), 20)),
        max=exactly(Fraction(longest)),
        open=still,
    )


def between(low: int, high: int, place: Fraction) -> timedelta:
    """
    Interpolate at a place between the two stays around it.
    """
    return exactly(low + (high - low) * (place % 1))


def exactly(microseconds: Fraction) -> timedelta:
    """
    Return a duration, rounded to the microsecond once.
    """
    return timedelta(microseconds=round(microseconds))


def finished(stays: Stays) -> models.QuerySet[Any]:
    """
    Return the entries of the stays that ended, with their times.
    """
    ended: models.QuerySet[Any] = (
        stays.entries.annotate(entered_at=F("occurred_at"), left_at=stays.left_at)
        .annotate(duration=ExpressionWrapper(F("left_at") - F("occurred_at"), output_field=models.DurationField()))
        .filter(left_at__isnull=False)
        .order_by("occurred_at", "id")
    )
    return ended


def stuck(stays: Stays, longer_than: Any) -> models.QuerySet[Any]:
    """
    Return the entries of the stays that go on for longer than this.
    """
    if not isinstance(longer_than, timedelta) or longer_than < timedelta(0):
        raise ValueError(
            f"longer_than= takes a timedelta that is not negative; found {longer_than!r}. Write timedelta(days=2)."
        )
    try:
        before = timezone.now() - longer_than
    except OverflowError:  # longer than there are dates, so nothing is
        return stays.entries.none()
    return stays.unfinished.filter(occurred_at__lt=before).order_by("occurred_at", "id")
