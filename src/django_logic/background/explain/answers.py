"""
Why is it not moving? One answer for each open row, from one moment of the database, and what to type next.

A fixed number of queries, whatever the number of rows. Nothing is locked and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import connections, models
from django.db.models import Q

from django_logic.background import gate
from django_logic.background.durable import numbered
from django_logic.background.explain import reading, sessions
from django_logic.background.explain.codes import Code, Explanation, Tally, decide
from django_logic.background.explain.reading import DECLARED_BY, Alike, Found, Standing, unheld
from django_logic.background.explain.sessions import Session, holders, oldest_snapshot, transactions
from django_logic.background.explain.texts import detail_of, next_command, snapshot_note
from django_logic.background.models import Kind, TransitionMessage, Worker
from django_logic.background.restore import Unknown, declaration_of
from django_logic.background.safety_nets import SEEN_WITHIN
from django_logic.clock import FromNow

__all__ = ["Code", "Explanation", "Tally", "explain", "rows_with", "tally"]


@dataclass(slots=True)
class Surroundings:
    """
    Hold what is asked once for all rows: who serves queues, whose sessions hold rows, what this code does not know.
    """

    alias: str
    served: Mapping[str, Sequence[str]]
    #: Sessions by who locked a row.
    holders: Mapping[str, Session] = field(default_factory=dict)
    #: Claimed rows whose lease is over and that nobody holds.
    lost: Set[int] = frozenset()
    places: Mapping[int, int] = field(default_factory=dict)
    complaints: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def unknown(self, message: TransitionMessage) -> str:
        """
        Say what of a row's declaration this code does not know; empty when it knows it.
        """
        key = tuple(getattr(message, name) for name in DECLARED_BY)
        if key not in self.complaints:
            self.complaints[key] = complaint(message)
        return self.complaints[key]

    def code(self, row: Found, *, is_behind: bool = False) -> Code:
        """
        Choose the reason of a row.
        """
        message, session, standing = row.message, self.holders.get(row.locker), row.standing
        is_attempt = row.is_claimed
        if session is not None:
            is_attempt = session.is_worker or (row.is_claimed and session.pid == message.backend_pid)
        is_lost = standing is Standing.CLAIMED and message.pk in self.lost
        return decide(
            unheld(row) if is_lost else standing,
            is_held=session is not None or (standing is Standing.CLAIMED and not is_lost),
            is_attempt=is_attempt,
            is_unknown=bool(self.unknown(message)),
            is_served=message.queue_name in self.served,
            is_behind=is_behind,
        )


def explain(
    queues: Iterable[str] | None = None,
    using: str = "default",
    pks: Iterable[int] | None = None,
    *,
    limit: int | None = None,
) -> list[Explanation]:
    """
    Say of every open row, of these queues or with these keys, why it is where it is; the oldest first.

    ``limit`` bounds how many are told. Transaction: none needed; holds nothing.
    """
    running = transactions(using)  # before the rows, so that whoever locks one of them is known
    found = reading.rows(using, None if queues is None else list(queues), pks, limit)
    if not found:
        return []
    around = surroundings(using, running, found)
    due = sorted({row.message.queue_name for row in found if row.standing is Standing.DUE})
    around.places = reading.places(using, due)
    explained = [explanation(row, around) for row in found]
    snapshot = oldest_snapshot(using, sessions.SNAPSHOT_SECONDS)
    if snapshot is not None:
        explained[0] = replace(explained[0], note=snapshot_note(*snapshot, using))
    return explained


def surroundings(alias: str, running: Mapping[str, Session], found: Sequence[Found]) -> Surroundings:
    """
    Ask what is the same for all rows, and who holds those that somebody may hold.
    """
    around = Surroundings(alias, serving(alias))
    around.holders = holders(alias, running, (row.locker for row in found))
    claimed = [row.message.pk for row in found if row.standing is Standing.CLAIMED and row.locker not in around.holders]
    around.lost = set(claimed)
    if connections[alias].vendor != "postgresql" and connections[alias].features.has_select_for_update_skip_locked:
        around.lost = gate.unlocked(claimed, alias) if claimed else set()
    return around


def explanation(row: Found, around: Surroundings) -> Explanation:
    """
    Explain one row.
    """
    message, session = row.message, around.holders.get(row.locker)
    ahead = around.places.get(message.pk, reading.MOST_AHEAD if row.standing is Standing.DUE else 0)
    code = around.code(row, is_behind=ahead > 0)
    return Explanation(
        id=message.pk,
        model=message.model_class or f"{message.app_label}.{message.model_name}",
        instance_id=message.instance_id,
        process=message.process_name,
        transition=message.transition_name,
        queue=message.queue_name,
        errors_count=message.errors_count,
        attempts_started=message.attempts_started,
        age_seconds=round((row.now - message.created).total_seconds(), 1),
        code=code,
        detail=detail_of(
            code,
            row,
            session=session,
            ahead=ahead,
            workers=around.served.get(message.queue_name, ()),
            unknown=around.unknown(message),
        ),
        next_command=next_command(code, row, around.alias, session),
    )


def serving(alias: str) -> dict[str, list[str]]:
    """
    Return the queues that workers serve which were seen just now, by the database's clock, with their names.
    """
    alive = Worker.objects.using(alias).filter(last_seen_at__gte=FromNow(-SEEN_WITHIN)).order_by("name")
    found: dict[str, list[str]] = {}
    for name, queues in alive.values_list("name", "queues"):
        for queue in queues:
            found.setdefault(queue, []).append(name)
    return found


def complaint(message: TransitionMessage) -> str:
    """
    Say what of a row's declaration this code does not know, hooks of durable rows included; empty when it knows it.
    """
    try:
        transition = declaration_of(message).candidate.transition
    except Unknown as unknown:
        return str(unknown)
    listed = {Kind.CALLBACK: transition.callbacks, Kind.FAILURE_CALLBACK: transition.failure_callbacks}
    hooks = listed.get(Kind(message.kind))
    if hooks is None or message.hook_name in dict(numbered(hooks)):
        return ""
    return f"{message.process_class}.{message.transition_name} has no {Kind(message.kind).label} {message.hook_name!r}"


def tally(queues: Iterable[str] | None = None, using: str = "default") -> list[Tally]:
    """
    Count the open rows by queue and reason, sorted; of the rows that are due in a served queue one is claimable.
    """
    counts: dict[tuple[str, Code], tuple[int, float]] = {}
    for code, group in grouped(using, queues):
        key = group.oldest.message.queue_name, code
        age = (group.oldest.now - group.oldest.message.created).total_seconds()
        before, oldest = counts.get(key, (0, 0.0))
        counts[key] = (before + group.count, max(oldest, age))
    for queue in {queue for queue, code in counts if code is Code.CLAIMABLE_NOW}:
        count, oldest = counts[queue, Code.CLAIMABLE_NOW]
        if count > 1:
            behind, longest = counts.get((queue, Code.WAITING_BEHIND), (0, 0.0))
            counts[queue, Code.CLAIMABLE_NOW] = (1, oldest)
            counts[queue, Code.WAITING_BEHIND] = (behind + count - 1, max(longest, oldest))
    return [
        Tally(queue=queue, code=code, count=count, oldest_seconds=oldest)
        for (queue, code), (count, oldest) in sorted(counts.items())
    ]


def grouped(alias: str, queues: Iterable[str] | None = None) -> list[tuple[Code, Alike]]:
    """
    Choose the reason of all rows that stand alike at once; those that are due are claimable, whatever their place.
    """
    running = transactions(alias)
    groups = reading.alike(alias, None if queues is None else list(queues))
    around = surroundings(alias, running, [group.oldest for group in groups])
    return [(around.code(group.oldest), group) for group in groups]


def rows_with(code: Code, using: str = "default") -> models.QuerySet[TransitionMessage]:
    """
    Return the open rows that have one reason, to be listed or narrowed further.
    """
    is_queued = code in (Code.CLAIMABLE_NOW, Code.WAITING_BEHIND)
    chosen, served = Q(pk__in=()), set()
    for own, group in grouped(using):
        if own is code or (is_queued and own is Code.CLAIMABLE_NOW):
            chosen |= like(group)
            served.add(group.oldest.message.queue_name)
    found = reading.standing_rows(using).filter(chosen)
    if not is_queued:
        return found
    first = list(reading.places(using, sorted(served), most=1))
    return found.filter(pk__in=first) if code is Code.CLAIMABLE_NOW else found.exclude(pk__in=first)


def like(group: Alike) -> Q:
    """
    Return the filter that finds the rows of a group.
    """
    message = group.oldest.message
    declared = {name: getattr(message, name) for name in DECLARED_BY}
    same = Q(standing=group.standing.value, queue_name=message.queue_name, locker=group.oldest.locker, **declared)
    if group.oldest.locker or group.standing is Standing.CLAIMED:
        same &= Q(backend_pid=message.backend_pid, claim_token__isnull=not group.oldest.is_claimed)
    return same
