"""
Whose sessions hold rows, and who keeps vacuum from its work: PostgreSQL's own views, which no other database has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connections

from django_logic.background.models import TransitionMessage

__all__ = ["Session", "holders", "oldest_snapshot", "transactions"]

#: A transaction elsewhere that is older than this is worth a note; seconds.
SNAPSHOT_SECONDS = 60.0
#: The application name, or its beginning, of an attempt's session; behind a pooler its number says little, since the
#: claim may have been made in another one.
WORKER_APPLICATION = "dl_worker"
#: How much of a session's statement is told.
LONGEST_QUERY = 100

#: Every transaction that runs and has a number, with its session.
TRANSACTIONS: Final = """
SELECT lock.transactionid::text, lock.pid, session.xact_start, session.usename, session.application_name,
    session.state, LEFT(session.query, 1000)
FROM pg_locks lock LEFT JOIN pg_stat_activity session ON session.pid = lock.pid
WHERE lock.locktype = 'transactionid' AND lock.mode = 'ExclusiveLock' AND lock.granted
"""

#: The transactions of groups that share a lock, the strongest kind of lock first. A number is looked up only if there
#: can be such a group, since asking for another one is an error.
MEMBERS: Final = """
SELECT wanted.number::text, member.xid::text
FROM (SELECT UNNEST(%(numbers)s::text[])::xid AS number) wanted
CROSS JOIN LATERAL PG_GET_MULTIXACT_MEMBERS(CASE WHEN MXID_AGE(wanted.number) BETWEEN 1 AND (
    SELECT MXID_AGE(datminmxid) FROM pg_database WHERE datname = CURRENT_DATABASE()
) THEN wanted.number END) member
ORDER BY member.mode = 'keysh'
"""

#: The session with the oldest transaction that keeps dead rows; attempts and other holders of rows are told by row.
OLDEST_SNAPSHOT: Final = """
SELECT session.pid, session.xact_start, session.usename, session.application_name, session.state,
    LEFT(session.query, 1000), STATEMENT_TIMESTAMP() - session.xact_start
FROM pg_stat_activity session
WHERE session.datname = CURRENT_DATABASE() AND session.pid <> PG_BACKEND_PID()
    AND session.backend_type = 'client backend'
    AND (session.backend_xmin IS NOT NULL OR session.backend_xid IS NOT NULL)
    AND session.xact_start < STATEMENT_TIMESTAMP() - %(seconds)s * INTERVAL '1 second'
    AND NOT EXISTS (
        SELECT FROM pg_locks lock WHERE lock.pid = session.pid AND lock.locktype = 'relation' AND lock.granted
            AND lock.mode = 'RowShareLock' AND lock.relation = TO_REGCLASS(%(table)s)
            AND lock.database = (SELECT oid FROM pg_database WHERE datname = CURRENT_DATABASE())
    )
ORDER BY session.xact_start LIMIT 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """
    Hold what is known of a database session; None and empty where its owner keeps it to himself.
    """

    pid: int | None
    since: datetime | None
    user: str
    application: str
    state: str
    query: str

    @property
    def is_worker(self) -> bool:
        """
        Tell whether it calls itself a worker's.
        """
        return self.application.startswith(WORKER_APPLICATION)

    def __str__(self) -> str:
        if self.pid is None:
            return "a prepared transaction (see pg_prepared_xacts)"
        known = ", ".join(filter(None, (self.user, self.application, self.state)))
        return f"session {self.pid}" + (f" ({known})" if known else "")


def transactions(alias: str) -> dict[str, Session]:
    """
    Return the sessions of the transactions that run, by the transaction's number; empty where no view shows them.
    """
    if connections[alias].vendor != "postgresql":
        return {}
    with connections[alias].cursor() as cursor:
        cursor.execute(TRANSACTIONS)
        return {number: as_session(*facts) for number, *facts in cursor.fetchall()}


def holders(alias: str, running: Mapping[str, Session], lockers: Iterable[str]) -> dict[str, Session]:
    """
    Return whose session holds a row, by who locked the row; those whose transaction is over are absent.

    A row's locker is a transaction or a group of them.
    """
    numbers = set(filter(None, lockers))
    found = {number: running[number] for number in numbers if number in running}
    groups = sorted(numbers - found.keys())
    if not groups or not running:
        return found
    with connections[alias].cursor() as cursor:
        cursor.execute(MEMBERS, {"numbers": groups})
        for number, member in cursor.fetchall():
            if member in running:
                found.setdefault(number, running[member])
    return found


def oldest_snapshot(alias: str, seconds: float) -> tuple[Session, timedelta] | None:
    """
    Find the session elsewhere whose transaction has kept dead rows for the longest, with its age; None for none.

    Units: only transactions older than so many seconds count.
    """
    if connections[alias].vendor != "postgresql":
        return None
    parameters: dict[str, Any] = {"seconds": seconds, "table": f'"{TransitionMessage._meta.db_table}"'}
    with connections[alias].cursor() as cursor:
        cursor.execute(OLDEST_SNAPSHOT, parameters)
        row = cursor.fetchone()
    if row is None:
        return None
    *facts, age = row
    return as_session(*facts), age


def as_session(*facts: Any) -> Session:
    """
    Make a session of a row.
    """
    pid, since, user, application, state, query = facts
    told = " ".join((query or "").split())
    return Session(
        pid=pid,
        since=since,
        user=user or "",
        application=application or "",
        state=state or "",
        query=told if len(told) <= LONGEST_QUERY else f"{told[: LONGEST_QUERY - 1]}…",
    )
