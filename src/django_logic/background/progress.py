"""
What an attempt has found out so far, and the questions that may end it on its way.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial

from django.db import connections, transaction

from django_logic.background.exceptions import Cancelled
from django_logic.background.models import Cancellation, TransitionMessage
from django_logic.background.restore import Restored
from django_logic.moves import Move

__all__ = ["Attempt", "Superseded", "cancelled_by", "guard", "raise_if_cancelled"]


class Superseded(Exception):
    """
    The object went another way, so the work is not wanted any more.
    """


@dataclass(slots=True)
class Attempt:
    """
    Hold what an attempt has found out so far.
    """

    message: TransitionMessage
    alias: str
    began: float = field(default_factory=time.monotonic)
    restored: Restored | None = None
    move: Move | None = None
    is_prepared: bool = False
    #: Whether a transaction of its own was committed, so that nothing can undo the work any more.
    is_committed: bool = False

    def note_commit(self) -> None:
        """
        Note when the transaction that is open now is committed, unless it is only a part of the caller's.
        """
        if len(connections[self.alias].atomic_blocks) == 1:
            transaction.on_commit(partial(setattr, self, "is_committed", True), using=self.alias)

    @property
    def seconds(self) -> float:
        """
        Return how long it has run.
        """
        return time.monotonic() - self.began

    def carry_over(self, restored: Restored) -> Restored:
        """
        Give a freshly restored call what ``prepare`` hooks put into the context.
        """
        if self.restored is None:
            return restored
        return replace(restored, call=replace(restored.call, context=self.restored.call.context))


def guard(restored: Restored) -> None:
    """
    Let work go on only while the object is where the call left it.

    Raises: Superseded.
    """
    transition = restored.candidate.transition
    busy = transition.in_progress_state
    if restored.state != busy if busy is not None else restored.state not in restored.candidate.sources:
        expected = repr(busy) if busy is not None else " or ".join(map(repr, transition.sources)) or "a source state"
        raise Superseded(
            f"expected the state {expected}, found {restored.state!r}: the object was moved by other means"
        )


def cancelled_by(actor_label: str, reason: str) -> Cancelled:
    """
    Build what a cancelled attempt is failed with.
    """
    by, why = (f" by {actor_label}" if actor_label else ""), (f": {reason}" if reason else "")
    error = Cancelled(f"cancelled{by}{why}")
    error.actor_label, error.reason = actor_label, reason
    return error


def raise_if_cancelled(attempt: Attempt) -> None:
    """
    Look whether somebody asked to cancel, and stop if so.

    Raises: Cancelled.
    """
    asked = Cancellation.objects.using(attempt.alias).filter(message_id=attempt.message.pk).first()
    if asked is not None:
        raise cancelled_by(asked.actor_label, asked.reason)
