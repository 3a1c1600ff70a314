"""
One object's life, read from history and audit together.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.apps import apps

from django_logic.records import about, history_of
from django_logic.subject import Column

__all__ = ["Entry", "of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """
    Hold one line of a timeline. ``kind`` is an outcome: moved, done, duplicate, refused or failed.
    """

    at: datetime
    kind: str
    action: str
    from_state: str | None
    to_state: str | None
    actor: str
    reason: str
    code: str = ""
    detail: str = ""

    def as_dict(self) -> dict[str, Any]:
        """
        Return the line as plain data, under the names the HTTP layer uses.
        """
        return {
            "at": self.at.isoformat(),
            "kind": self.kind,
            "action": self.action,
            "from": self.from_state,
            "to": self.to_state,
            "actor": self.actor,
            "reason": self.reason,
            "code": self.code,
        }


def of(column: Column, key: str, alias: str) -> list[Entry]:
    """
    Merge an object's history and audit rows in the order they happened.

    An audit entry of a call that wrote history is that same event: it only adds how the call ended and why.
    """
    moves = list(history_of(column, key, alias).order_by("sequence"))
    last = {move.transition_id: move.pk for move in moves}  # background work moves its object twice
    audits = (
        apps.get_model("django_logic", "AuditEntry").objects.using(alias).filter(**about(column, key)).order_by("id")
    )
    ends = {entry.transition_id: entry for entry in audits if entry.transition_id in last}
    lines = [
        line(move, ends.get(move.transition_id) if move.pk == last[move.transition_id] else None) for move in moves
    ]
    lines += [line(entry, entry) for entry in audits if entry.transition_id not in last]
    return sorted(lines, key=lambda entry: entry.at)


def line(row: Any, end: Any) -> Entry:
    """
    Make a line of a row and of the audit entry, if any, that tells how its call ended.
    """
    return Entry(
        at=row.occurred_at,
        kind=str(end.outcome) if end is not None else "moved",
        action=row.action,
        from_state=row.from_state,
        to_state=row.to_state,
        actor=row.actor_label or "system",
        reason=row.reason,
        code=end.code if end is not None else "",
        detail=end.detail if end is not None else "",
    )
