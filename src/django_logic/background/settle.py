"""
The one place that says how an attempt ended: outcome columns, the next due time, and nothing else.

Every write is conditional on the claim's token, so an attempt that lost its row can't write over another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.db import connections, transaction

from django_logic import writer
from django_logic.background.claim import TokenLost
from django_logic.background.exceptions import words_of
from django_logic.background.models import Cancellation, Kind, State, TransitionMessage, never
from django_logic.clock import FromNow
from django_logic.moves import ChangeLost
from django_logic.rows import Change, Unless

__all__ = ["Ended", "Outcome", "completion", "fail_attempt", "keep", "put_back", "told", "write"]

#: Stored texts end here.
LONGEST_TEXT = 10_000


class Ended(StrEnum):
    """
    Name how an attempt ended: the outcomes of a row, and the ways in which it goes on waiting.
    """

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    UNRESTORABLE = "unrestorable"
    CANCELLED = "cancelled"
    RETRY = "retry"
    SNOOZED = "snoozed"
    DEFERRED = "deferred"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """
    Say how an attempt ended, and what failed it; ``pause`` is when the next one may begin, in seconds.
    """

    ended: Ended
    message_id: int
    error: BaseException | None = None
    pause: float | None = None


def told(error: BaseException | str, mark: str = "") -> str:
    """
    Return a text every database stores: no NUL, no lone surrogate, bounded.
    """
    text = error if isinstance(error, str) else words_of(error)
    text = f"[{mark}] {text}" if mark else text
    clean = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
    return clean if len(clean) <= LONGEST_TEXT else clean[: LONGEST_TEXT - 1] + "…"


def ours(message: TransitionMessage) -> dict[str, Any]:
    """
    Return what a row still says while this attempt may write it.
    """
    return {"claim_token": message.claim_token, "is_completed": False}


def completion(message: TransitionMessage, state: State, took: float | None, **more: Any) -> Change:
    """
    Return the change that ends a row, to be written by itself or with the move it belongs to.

    ``took`` is in seconds, None where no attempt was measured. A cancelled attempt can't succeed.
    """
    values: dict[str, Any] = {
        "is_completed": True,
        "outcome": str(state),
        "ended_in_failure": state in (State.FAILED, State.CANCELLED, State.UNRESTORABLE),
        "completed_at": FromNow(),
        "modified": FromNow(),
        "claim_token": None,
        "duration_ms": None if took is None else round(took * 1000),
        **more,
    }
    unless = Unless(model=Cancellation, attribute="message_id") if state is State.SUCCEEDED else None
    return Change(model=TransitionMessage, pk=message.pk, expected=ours(message), values=values, unless=unless)


def put_back(
    message: TransitionMessage, alias: str, seconds: float, *, note: str | None = None, is_first: bool = False
) -> None:
    """
    Let a row wait and be claimed again; its attempt is not counted. ``is_first`` also notes since when it waits.
    """
    values: dict[str, Any] = {"run_at": FromNow(seconds), "claim_token": None, "modified": FromNow()}
    values["attempts_started"] = max(0, message.attempts_started - 1)
    if note is not None:
        values["last_error_message"] = note
    if is_first:
        values["last_error_dt"] = FromNow()
    write(Change(model=TransitionMessage, pk=message.pk, expected=ours(message), values=values), alias)
    hold_behind(message, alias, seconds)


def keep(message: TransitionMessage, alias: str, seconds: float) -> None:
    """
    Keep a claimed row for longer, while no lock says that it runs.
    """
    values = {"run_at": FromNow(seconds), "modified": FromNow()}
    write(Change(model=TransitionMessage, pk=message.pk, expected=ours(message), values=values), alias)


def fail_attempt(message: TransitionMessage, alias: str, text: str, pause: float | None) -> None:
    """
    Record an error and when the row is due again; None leaves it to an operator.
    """
    due = never() if pause is None else FromNow(pause)
    values = {
        "errors_count": message.attempts_started,
        "last_error_message": text,
        "last_error_dt": FromNow(),
        "run_at": due,
        "claim_token": None,
        "modified": FromNow(),
    }
    write(Change(model=TransitionMessage, pk=message.pk, expected=ours(message), values=values), alias)
    if pause is not None:
        hold_behind(message, alias, pause)


def hold_behind(message: TransitionMessage, alias: str, seconds: float) -> None:
    """
    Let the rows behind one that follows a transition wait with it, so that claims need not step over them.
    """
    if message.kind == Kind.TRANSITION or not seconds:
        return
    behind = TransitionMessage.objects.using(alias).durable_beside(message)
    behind = behind.filter(id__gt=message.pk, run_at__lt=FromNow(seconds)).order_by("pk")
    with transaction.atomic(using=alias):
        if connections[alias].features.has_select_for_update_skip_locked:
            behind = behind.select_for_update(skip_locked=True)  # whoever holds one of them decides for it
        pks = list(behind.values_list("pk", flat=True))
        TransitionMessage.objects.using(alias).filter(pk__in=pks).update(run_at=FromNow(seconds))


def write(change: Change, alias: str) -> None:
    """
    Write a change of a row by itself.

    Transaction: joins the caller's. Raises: TokenLost where the row is another one's by now, or may not change.
    """
    try:
        writer.change_row(change, alias)
    except ChangeLost:
        raise TokenLost from None
