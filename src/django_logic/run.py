"""
What a call finds out on its way through the engine, and the questions every step asks of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

from django.db import connections, transaction
from django.dispatch import Signal
from django.utils.module_loading import import_string

from django_logic import conf, extension, hooks, judge
from django_logic.call import Call, running_within
from django_logic.exceptions import AlreadyInProgress, Refusal, TransitionNotAllowed
from django_logic.moves import Move
from django_logic.records import may_read_old_snapshot, newest_sequence
from django_logic.subject import instance_key, state_of
from django_logic.transitions import Transition
from django_logic.tree import Candidate

__all__ = [
    "Performer",
    "Run",
    "announce",
    "blocked_error",
    "lock_of",
    "performer_of",
    "raise_if_blocked",
    "reads_whole",
    "version_of",
]


@dataclass(slots=True)
class Run:
    """
    Hold what a call has found out so far; lives as long as `perform`.
    """

    call: Call
    #: The declaration whose ``prepare`` hooks ran.
    prepared: Candidate | None = None
    #: The declaration that was judged fit.
    chosen: Candidate | None = None
    #: The state that was read under the lock, in a tuple; empty before.
    state: tuple[Any, ...] = ()
    is_duplicate: bool = False
    #: Whether a transaction of this call's own was committed, so that nothing can undo the move any more.
    is_committed: bool = False
    move: Move | None = None
    #: What a hook raised, to tell it from a refusal of this call.
    hook_error: Exception | None = None

    def note_commit(self) -> None:
        """
        Note when the transaction that is open now is committed, before anything else that waits for it runs.
        """
        transaction.on_commit(partial(setattr, self, "is_committed", True), using=self.call.alias)


class Performer(Protocol):
    """
    Take over the work of a declaration that names it by its dotted path.
    """

    def accept(self, run: Run, candidate: Candidate, state: Any) -> None:
        """
        Note what was asked for; runs where side effects and the write of other declarations do.
        """

    def is_gate(self, call: Call, candidate: Candidate, state: Any) -> bool:
        """
        Tell whether `accept` is one statement that fails while background work of the object is open.
        """

    def follow(self, run: Run) -> None:
        """
        See to it that the work begins, once the call has ended well.
        """

    def accept_many(self, call: Call, candidate: Candidate, state: Any, pks: Sequence[Any]) -> int:
        """
        Note the same for many locked objects in one state; return for how many.
        """

    def follow_many(self, call: Call, candidate: Candidate) -> None:
        """
        See to it that the work of many begins.
        """


def performer_of(transition: Transition) -> Performer:
    """
    Return who takes over the work of a declaration.
    """
    return loaded(str(transition.performer))


@cache
def loaded(path: str) -> Performer:
    """
    Import a performer once.
    """
    performer: Performer = import_string(path)
    return performer


def lock_of(call: Call) -> str:
    """
    Return how a call holds its row: as declared, else by settings.
    """
    declared = next((candidate.lock for candidate in judge.candidates_of(call) if candidate.lock is not None), None)
    return declared or conf.lock_kind()


def reads_whole(call: Call) -> bool:
    """
    Tell whether hooks will look at the instance under the lock, so that all of it has to be fresh.
    """
    return call.tree.root.refresh and any(candidate.has_work for candidate in judge.candidates_of(call))


def version_of(call: Call) -> int:
    """
    Return the version of the object now.

    Transaction: within the caller's; what is committed counts, not what an old snapshot shows.
    """
    is_locking = connections[call.alias].in_atomic_block and may_read_old_snapshot(call.alias)
    return newest_sequence(call.column, instance_key(call.column, call.instance), call.alias, is_locking=is_locking)


def raise_if_blocked(call: Call) -> None:
    """
    Refuse a call whose object has background work open; asks nothing where the process declares none.
    """
    if not call.tree.has_background:
        return
    key = instance_key(call.column, call.instance)
    reason = extension.blocked(call.column, call.alias, [key]).get(key)
    if reason is not None:
        raise blocked_error(call, reason)


def blocked_error(call: Call, reason: Refusal) -> TransitionNotAllowed:
    """
    Build the refusal of a blocked call: a second background call exists already, everybody else waits.
    """
    error = judge.refuse(call, state_of(call.column, call.instance), (reason,))
    is_background = any(candidate.transition.is_background for candidate in judge.candidates_of(call))
    if reason.code == "background_in_flight" and is_background:
        return AlreadyInProgress(
            str(error),
            action=error.action,
            target=error.target,
            current_state=error.current_state,
            reasons=error.reasons,
        )
    return error


def announce(signal: Signal, call: Call, **facts: Any) -> None:
    """
    Tell log, audit and receivers how a call goes on; one that raises is logged and changes nothing.

    Transaction: in the caller's, receivers get a savepoint, so that a database error of theirs spoils nothing.
    """
    for observer in extension.observers(signal):
        hooks.run_quietly(call, "an observer", partial(observer, call=call, **facts))
    if not signal.receivers:
        return
    tell = partial(signal.send_robust, sender=call.column.model, call=call, **facts)
    with running_within(call):
        hooks.run_apart(call, "a signal receiver", tell)
