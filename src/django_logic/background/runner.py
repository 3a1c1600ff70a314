"""
Running what is due here and now, in the caller's process: for tests, cron lines and foreign task queues.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from uuid import UUID

from django.db import transaction

from django_logic.background import attempt, claim
from django_logic.background.lanes import lanes_of
from django_logic.background.models import Kind, TransitionMessage
from django_logic.background.settle import Ended, Outcome

#: Endings after which a row is due again, or somebody else's.
GOES_ON = (Ended.RETRY, Ended.SNOOZED, Ended.DEFERRED, Ended.LOST)

__all__ = ["failure_of", "retry_pending", "run_available", "run_row", "run_rows_after_commit"]


def run_available(queues: Iterable[str] | None = None, limit: int | None = None, *, using: str = "default") -> int:
    """
    Run what is due, of these queues or of all, until nothing is or ``limit`` rows ran; return how many ran.

    Durable callbacks count too. A row that comes due again while this runs is left to the next call.
    """
    wanted = None if queues is None else list(queues)
    if isinstance(queues, (str, bytes)):
        raise TypeError(f"run_available takes a list of queues; found {queues!r}. Write [{queues!r}].")
    still_open: set[int] = set()
    lanes = lanes_of(using, wanted)
    count = 0
    while limit is None or count < limit:
        message = claim.take_next(using, lanes, besides=still_open)
        if message is not None:
            outcome = attempt.run_claimed(message, using)
            if outcome.ended in GOES_ON:
                still_open.add(message.pk)
            count += 1
            continue
        fresh = lanes_of(using, wanted)  # what ran may have asked for more, elsewhere
        if fresh.lanes == lanes.lanes and not lanes.lift():
            break
        lanes = fresh
    return count


def retry_pending(*, using: str = "default") -> int:
    """
    Run everything that is due in all queues once, and return how many rows ran.
    """
    return run_available(using=using)


def run_row(alias: str, pk: int, transition_id: UUID) -> Outcome | None:
    """
    Run an attempt of one row here and now, and what follows once that is committed; None when it could not be claimed.

    Transaction: as `attempt.run`.
    """
    outcome = attempt.run(pk, alias)
    run_rows_after_commit(alias, transition_id)
    return outcome


def failure_of(outcome: Outcome | None) -> BaseException | None:
    """
    Return what a caller hears of an attempt: what went another way, or is not known here, has not failed.
    """
    if outcome is None or outcome.ended in (Ended.SUPERSEDED, Ended.DEFERRED):
        return None
    return outcome.error


def run_rows_after_commit(alias: str, transition_id: UUID) -> None:
    """
    Run what follows a transition once the open transaction is committed; at once where none is open.
    """
    transaction.on_commit(partial(run_rows, alias, transition_id), using=alias, robust=True)


def run_rows(alias: str, transition_id: UUID) -> None:
    """
    Run the rows that follow a transition, in their order, up to the first that has to be tried again.
    """
    rows = TransitionMessage.objects.using(alias).open().exclude(kind=Kind.TRANSITION)
    for pk in list(rows.filter(transition_id=transition_id).order_by("pk").values_list("pk", flat=True)):
        outcome = attempt.run(pk, alias)
        if outcome is None or outcome.ended in GOES_ON:
            break
