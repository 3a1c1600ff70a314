"""
Times of the database's clock: what is due, and since when, is never judged by a machine of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import DateTimeField, Func
from django.utils import timezone

__all__ = ["NOW", "FromNow"]


class FromNow(Func):
    """
    Stand for the database's time as the statement runs, plus some seconds; negative ones lie in the past.

    Units: seconds.
    """

    output_field = DateTimeField()

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = float(seconds)

    def as_sql(
        self, compiler: Any, connection: Any, *_template: Any, **extra: Any
    ) -> tuple[str, tuple[str | int, ...]]:
        """
        Write it for a database of a kind nobody has tried.
        """
        raise NotImplementedError(f"FromNow is not written for {connection.vendor}.")

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Sequence[Any]]:
        """
        Write it for PostgreSQL: a transaction's own time stands still, a statement's may use an index.
        """
        if not self.seconds:
            return "STATEMENT_TIMESTAMP()", ()
        return "(STATEMENT_TIMESTAMP() + %s::double precision * INTERVAL '1 second')", (self.seconds,)

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Sequence[Any]]:
        """
        Write it for MySQL and MariaDB, which keep times without a zone.
        """
        seconds = self.seconds + offset_of(connection)
        if not seconds:
            return "UTC_TIMESTAMP(6)", ()
        return "(UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND)", (round(seconds * 1_000_000),)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, tuple[str | int, ...]]:
        """
        Write it for SQLite, in the form Django stores times there.
        """
        return "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'now', %s)", (
            f"{self.seconds + offset_of(connection):+.3f} seconds",
        )


#: The database's time as a statement runs.
NOW = FromNow()


def offset_of(connection: Any) -> float:
    """
    Return how far the zone in which Django stores times is ahead of UTC, for databases that know no zones; seconds.
    """
    zone = connection.timezone if settings.USE_TZ else timezone.get_default_timezone()
    offset = datetime.now(zone).utcoffset()
    return offset.total_seconds() if offset is not None else 0.0
