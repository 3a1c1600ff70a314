"""
Why is it not moving? One answer for each open row, from one moment of the database, and what to type next.

A fixed number of queries, whatever the number of rows. Nothing is locked and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import connections, models
from django.db.models import Q

from django_logic import conf
from django_logic.background import explain_rows, gate
from django_logic.background.durable import numbered
from django_logic.background.explain_codes import Code, Explanation, Tally, decide
from django_logic.background.explain_rows import DECLARED_BY, MOST_AHEAD, Alike, Found, Standing
from django_logic.background.explain_sessions import Session, holders, oldest_snapshot
from django_logic.background.explain_texts import detail_of, next_command, snapshot_note
from django_logic.background.models import Kind, TransitionMessage, Worker
from django_logic.background.restore import Unknown, declaration_of
from django_logic.background.safety_nets import SEEN_WITHIN
from django_logic.clock import FromNow

__all__ = ["Code", "Explanation", "Tally", "explain", "rows_with", "tally"]

#: A transaction elsewhere that is older than this is worth a note; seconds.
SNAPSHOT_SECONDS = 60.0


@dataclass(slots=True)
class Surroundings:
    """
    Hold what is asked once for all rows: who serves queues, whose sessions hold rows, what this code does not know.
    """

    served: Mapping[str, Sequence[str]]
    sessions: Mapping[str, Session] = field(default_factory=dict)
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

    def is_attempt(self, holder: str, is_claimed: bool, session_of_claim: int | None) -> bool | None:
        """
        Tell whether an attempt holds a row; None where nobody does, or whoever did has let it go unclaimed.
        """
        if not holder:
            return None
        session = self.sessions.get(holder)
        if session is None:
            return True if is_claimed else None
        return session.is_worker or (is_claimed and session.pid == session_of_claim)


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
    found = explain_rows.rows(using, None if queues is None else list(queues), pks, limit)
    found = told_apart(found, using)
    if not found:
        return []
    around = Surroundings(served=serving(using))
    around.sessions = holders(using, (row.holder for row in found))
    due = sorted({row.message.queue_name for row in found if row.standing is Standing.DUE})
    around.places = explain_rows.places(using, due)
    explained = [explanation(row, around, using) for row in found]
    snapshot = oldest_snapshot(using, SNAPSHOT_SECONDS)
    if snapshot is not None:
        explained[0] = replace(explained[0], note=snapshot_note(*snapshot, using))
    return explained


def explanation(row: Found, around: Surroundings, alias: str) -> Explanation:
    """
    Explain one row.
    """
    message, session = row.message, around.sessions.get(row.holder)
    workers = around.served.get(message.queue_name, ())
    ahead = around.places.get(message.pk, MOST_AHEAD if row.standing is Standing.DUE else 0)
    unknown = around.unknown(message)
    code = decide(
        row.standing,
        is_attempt=around.is_attempt(row.holder, message.claim_token is not None, message.backend_pid),
        is_unknown=bool(unknown),
        is_served=bool(workers),
        is_behind=ahead > 0,
    )
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
        detail=detail_of(code, row, session=session, ahead=ahead, workers=workers, unknown=unknown),
        next_command=next_command(code, row, alias, session),
    )


def told_apart(found: list[Found], alias: str) -> list[Found]:
    """
    Tell claimed rows that nobody holds from those that run, where the database shows it by skipping locked rows only.
    """
    claimed = [row.message.pk for row in found if row.standing is Standing.CLAIMED]
    if not claimed or not connections[alias].features.has_select_for_update_skip_locked:
        return found
    free = gate.unlocked(claimed, alias)
    return [replace(row, standing=unheld(row)) if row.message.pk in free else row for row in found]


def unheld(row: Found) -> Standing:
    """
    Say how a claimed row stands whose attempt is gone.
    """
    is_spent = row.message.attempts_started >= (row.message.max_errors or conf.max_errors())
    return Standing.SPENT if is_spent else Standing.DUE


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
        transition = declaration_of(message)[2].transition
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
    groups = explain_rows.alike(using, None if queues is None else list(queues))
    around = Surroundings(served=serving(using), sessions=holders(using, (group.holder for group in groups)))
    counts: dict[tuple[str, Code], tuple[int, float]] = {}
    for group in groups:
        age = (group.oldest.now - group.oldest.message.created).total_seconds()
        code = code_of(group, around)
        before, oldest = counts.get((group.queue, code), (0, 0.0))
        counts[group.queue, code] = (before + group.count, max(oldest, age))
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


def code_of(group: Alike, around: Surroundings) -> Code:
    """
    Choose the reason of rows that stand alike; those that are due count as claimable, whatever their place.
    """
    return decide(
        group.standing,
        is_attempt=around.is_attempt(group.holder, group.is_claimed, group.session),
        is_unknown=bool(around.unknown(group.oldest.message)),
        is_served=group.queue in around.served,
        is_behind=False,
    )


def rows_with(code: Code, using: str = "default") -> models.QuerySet[TransitionMessage]:
    """
    Return the open rows that have one reason, to be listed or narrowed further.
    """
    found = explain_rows.standing_rows(using)
    groups = explain_rows.alike(using)
    around = Surroundings(served=serving(using), sessions=holders(using, (group.holder for group in groups)))
    is_queued = code in (Code.CLAIMABLE_NOW, Code.WAITING_BEHIND)
    chosen = Q(pk__in=())
    for group in groups:
        own = code_of(group, around)
        if own is code or (is_queued and own is Code.CLAIMABLE_NOW):
            chosen |= like(group)
    found = found.filter(chosen)
    if not is_queued:
        return found
    served = sorted({group.queue for group in groups if group.queue in around.served})
    first = list(explain_rows.places(using, served, most=1))
    return found.filter(pk__in=first) if code is Code.CLAIMABLE_NOW else found.exclude(pk__in=first)


def like(group: Alike) -> Q:
    """
    Return the filter that finds the rows of a group.
    """
    declared = {name: getattr(group.oldest.message, name) for name in DECLARED_BY}
    same = Q(standing=group.standing.value, queue_name=group.queue, **declared)
    if group.holder:
        same &= Q(holder=group.holder, backend_pid=group.session, claim_token__isnull=not group.is_claimed)
    return same
