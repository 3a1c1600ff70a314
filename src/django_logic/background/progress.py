"""
What an attempt has found out so far, and the questions that may end it on its way.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from django_logic.background.exceptions import Cancelled
from django_logic.background.models import Cancellation, TransitionMessage
from django_logic.background.restore import Restored
from django_logic.moves import Move

__all__ = ["Attempt", "Superseded", "guard", "raise_if_cancelled", "refuse_cancelled"]


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


def refuse_cancelled(is_cancelled: bool) -> None:
    """
    Raise where somebody asked to cancel.
    """
    if is_cancelled:
        raise Cancelled("cancelled on request")


def raise_if_cancelled(attempt: Attempt) -> None:
    """
    Look whether somebody asked to cancel, and stop if so.
    """
    rows = Cancellation.objects.using(attempt.alias).filter(message_id=attempt.message.pk)
    refuse_cancelled(rows.exists())
