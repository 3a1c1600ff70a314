"""
The words of an explanation: what is known beyond the code, and the next command to type.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS
from django.utils import timezone

from django_logic.background.explain import reading
from django_logic.background.explain.codes import Code
from django_logic.background.explain.reading import Found
from django_logic.background.explain.sessions import Session
from django_logic.background.models import Kind
from django_logic.background.safety_nets import SEEN_WITHIN

__all__ = ["detail_of", "moment", "next_command", "snapshot_note", "span", "span_of"]

#: How much of an error is told.
LONGEST_ERROR = 120


def detail_of(
    code: Code,
    found: Found,
    *,
    session: Session | None = None,
    ahead: int = 0,
    workers: Sequence[str] = (),
    unknown: str = "",
) -> str:
    """
    Say what is known of a row beyond its code.
    """
    message = found.message
    match code:
        case Code.SPENT_ALL_ATTEMPTS:
            told = spent(found)
        case Code.RETRY_PAUSE_UNTIL:
            told = f"{later(found)}, after error {message.errors_count} of {limit_of(found)}{last_error(found)}"
        case Code.SCHEDULED_FOR:
            told = later(found) + (last_error(found) if found.error else "")
        case Code.RUNNING:
            told = running(found, session)
        case Code.LEASE_LIVE_UNTIL:
            told = f"{later(found)}: {claimed_by(found)}, which begins, runs prepare hooks, or died"
        case Code.NO_WORKER_FOR_QUEUE:
            told = f"{due(found)}, and no worker of {message.queue_name!r} was seen within {SEEN_WITHIN:g} s"
        case Code.WAITING_BEHIND if found.blocker is not None:
            told = f"row {found.blocker} of the same object comes first"
        case Code.WAITING_BEHIND:
            told = f"{counted(ahead)} first, for {names(workers)}"
        case Code.UNKNOWN_TRANSITION:
            told = f"{unknown}; deploy the code that knows it, or cancel the row"
        case Code.HELD_BY_SESSION:
            told = held(session)
        case _:
            told = f"{due(found)}, the next one for {names(workers)}"
    asked = "; asked to cancel" if found.is_cancelled else ""
    hook = "" if message.kind == Kind.TRANSITION else f"{Kind(message.kind).label} {message.hook_name}: "
    return f"{hook}{told}{asked}"


def spent(found: Found) -> str:
    """
    Say that nothing will be tried any more.
    """
    tried = f"{found.message.attempts_started} of {limit_of(found)} attempts spent{last_error(found)}"
    if found.message.kind != Kind.TRANSITION:
        return f"{tried}; it waits for you"
    return f"{tried}; a worker's upkeep takes the failure path within a minute"


def running(found: Found, session: Session | None) -> str:
    """
    Say which worker runs a row, in which session and since when.
    """
    message = found.message
    pid = session.pid if session is not None else message.backend_pid
    where = f" in session {pid}" if pid is not None else ""
    since = session.since if session is not None and session.since is not None else message.started_at
    if since is None:
        return f"worker {message.worker or 'unknown'}{where}"
    told = f"worker {message.worker or 'unknown'}{where}, since {moment(since)} ({span(found.now - since)})"
    return f"{told}, attempt {message.attempts_started} of {limit_of(found)}"


def held(session: Session | None) -> str:
    """
    Say who holds a row that is no attempt.
    """
    if session is None:
        return "some session holds its lock"
    since = f" since {moment(session.since)}" if session.since is not None else ""
    return f"{session} holds its lock{since}" + (f": {session.query}" if session.query else "")


def claimed_by(found: Found) -> str:
    """
    Name the attempt a row is kept for.
    """
    message = found.message
    where = f" in session {message.backend_pid}" if message.backend_pid is not None else ""
    ago = f" {span(found.now - message.started_at)} ago" if message.started_at is not None else ""
    return f"claimed{ago} by worker {message.worker or 'unknown'}{where}"


def due(found: Found) -> str:
    """
    Say since when a row is due; one that an attempt left without a word says so.
    """
    lost = ""
    if found.message.attempts_started > found.message.errors_count:
        lost = ", its last attempt has left no record"
    return f"due since {moment(found.message.run_at)} ({span(found.now - found.message.run_at)}){lost}"


def later(found: Found) -> str:
    """
    Say when a row is due.
    """
    return f"{moment(found.message.run_at)} (in {span(found.message.run_at - found.now)})"


def last_error(found: Found) -> str:
    """
    Quote the last error, shortened, after a colon.
    """
    text = " ".join(found.error.split())
    short = text if len(text) <= LONGEST_ERROR else f"{text[: LONGEST_ERROR - 1]}…"
    return f": {short}" if short else ""


def limit_of(found: Found) -> int:
    """
    Return how many attempts a row may spend.
    """
    return found.message.attempts_allowed


def counted(ahead: int) -> str:
    """
    Say how many rows come.
    """
    more = " or more" if ahead >= reading.MOST_AHEAD else ""
    return f"{ahead:,}{more} {'row comes' if ahead == 1 else 'rows come'}"


def names(workers: Sequence[str]) -> str:
    """
    Name the workers of a queue, the first three of many.
    """
    shown = ", ".join(workers[:3])
    more = f" and {len(workers) - 3} more" if len(workers) > 3 else ""
    return f"worker{'s' if len(workers) > 1 else ''} {shown}{more}" if workers else "the next worker"


def snapshot_note(session: Session, age: timedelta, alias: str) -> str:
    """
    Say that somebody keeps vacuum from its work, and how to see who.
    """
    look = shell(f"SELECT * FROM pg_stat_activity WHERE pid = {session.pid}", alias)  # noqa: S608 (a number, for people)
    return (
        f"{Code.HELD_SNAPSHOT}: {session} has had a transaction open for {span(age)}, so that vacuum can't remove dead"
        f" rows and claims slow down: {look}"
    )


def next_command(code: Code, found: Found, alias: str, session: Session | None = None) -> str:
    """
    Return what to type next.
    """
    pk = found.message.pk
    match code:
        case Code.SPENT_ALL_ATTEMPTS:
            return typed(alias, "dl_transitions", "--retry", str(pk))
        case Code.RUNNING | Code.UNKNOWN_TRANSITION:
            return typed(alias, "dl_transitions", "--cancel", str(pk))
        case Code.HELD_BY_SESSION if session is not None and session.pid is not None:
            return shell(f"SELECT pg_terminate_backend({session.pid})", alias)
        case Code.HELD_BY_SESSION:
            return shell("SELECT * FROM pg_prepared_xacts", alias)
        case Code.LEASE_LIVE_UNTIL:
            return typed(alias, "dl_transitions", "--queues", found.message.queue_name, "--watch")
        case Code.WAITING_BEHIND if found.blocker is not None:
            return typed(alias, "dl_transitions", "--send", str(found.blocker))
        case Code.NO_WORKER_FOR_QUEUE | Code.WAITING_BEHIND:
            return typed(alias, "dl_worker", "--queues", found.message.queue_name)
        case _:
            return typed(alias, "dl_transitions", "--send", str(pk))


def typed(alias: str, *words: str) -> str:
    """
    Write a command as a shell takes it.
    """
    return shlex.join(("manage.py", *words, *database(alias)))


def shell(statement: str, alias: str) -> str:
    """
    Write a command that sends a statement.
    """
    return shlex.join(("manage.py", "dbshell", *database(alias), "--", "-c", statement))


def database(alias: str) -> tuple[str, ...]:
    """
    Return the option that names a database, none for the one every command takes.
    """
    return () if alias == DEFAULT_DB_ALIAS else ("--database", alias)


def moment(when: datetime) -> str:
    """
    Write a time to the second, in the project's time zone.
    """
    local = timezone.localtime(when) if settings.USE_TZ and timezone.is_aware(when) else when
    return local.isoformat(sep=" ", timespec="seconds")


def span(length: timedelta) -> str:
    """
    Write a duration with its two largest units.
    """
    return span_of(length.total_seconds())


def span_of(seconds: float) -> str:
    """
    Write a duration given in seconds with its two largest units.
    """
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
