"""
The life of one attempt: claim, prepare, lock, restore, guard, side effects, the write, commit, what follows.

`run_claimed` tells it; workers, the inline runner and sync mode share it. How an attempt ends badly is told in
`django_logic.background.ending`.
"""

from __future__ import annotations

from dataclasses import replace

from django.db import connections, transaction

from django_logic import follow, hooks, signals, writer
from django_logic.background import claim, durable, ending, settle
from django_logic.background.claim import TokenLost
from django_logic.background.exceptions import AttemptFailed
from django_logic.background.models import Kind, State, TransitionMessage
from django_logic.background.progress import Attempt, Superseded, guard, raise_if_cancelled
from django_logic.background.restore import (
    Declaration,
    Restored,
    declaration_of,
    load,
    loaded,
    reading_of,
    rebuild,
)
from django_logic.background.settle import Ended, Outcome
from django_logic.background.testpoints import reach
from django_logic.engine import perform
from django_logic.moves import ChangeLost, MoveLost, plan
from django_logic.run import announce
from django_logic.work import refuse_swallowed
from django_logic.work import tell as tell_of_action

__all__ = ["Outcome", "run", "run_claimed", "tell"]

#: How long a row is kept while ``prepare`` hooks run outside any transaction and its declaration has no time limit.
PREPARE_LEASE = 3600.0


def run(pk: int, using: str = "default") -> Outcome | None:
    """
    Run one attempt of a row here and now, whatever its queue and its time; None when it could not be claimed.

    Transaction: opens its own; within the caller's all of it lives or dies with that one.
    """
    message = claim.take(using, pk)
    return None if message is None else run_claimed(message, using)


def run_claimed(message: TransitionMessage, alias: str) -> Outcome:
    """
    Run an attempt of a row that was claimed, and say how it ended; what hooks raise is in the outcome.

    Transaction: as `run`.
    """
    attempt = Attempt(message, alias)
    try:
        reach("after_claim")
        if ending.is_spent(message):
            outcome = ending.give_up_spent(attempt)
        else:
            outcome = work(attempt) if message.kind == Kind.TRANSITION else deliver(attempt)
            reach("after_commit")
    except TokenLost:
        hooks.logger.warning("%s: attempt %s lost its row, nothing was kept", message, message.attempts_started)
        outcome = Outcome(ended=Ended.LOST, message_id=message.pk, error=AttemptFailed("another one took the row over"))
    except Exception as error:
        outcome = ended_after_commit(attempt, error) if attempt.is_committed else ended_badly(attempt, error)
    tell(attempt, outcome)
    return outcome


def ended_after_commit(attempt: Attempt, error: Exception) -> Outcome:
    """
    Go on after work that a hook scheduled for after the commit failed: the attempt itself stands.
    """
    hooks.logger.error("%s: work scheduled for after its commit failed", attempt.message, exc_info=error)
    return Outcome(ended=Ended.SUCCEEDED, message_id=attempt.message.pk)


def ended_badly(attempt: Attempt, error: Exception) -> Outcome:
    """
    Record how an attempt failed, by a connection that works.
    """
    reach("before_accounting")
    connection = connections[attempt.alias]
    if connection.errors_occurred and not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()
    return ending.record(attempt, error)


def work(attempt: Attempt) -> Outcome:
    """
    Run the side effects of a transition and write everything that says it is done, in one transaction.
    """
    message, alias = attempt.message, attempt.alias
    declaration = declaration_of(message)
    prepare(attempt, declaration)
    with transaction.atomic(using=alias):
        restored = hold(attempt, declaration)
        guard(restored)
        run_effects(attempt, restored)
        refuse_swallowed(restored.call)
        write(attempt, restored)
        reach("before_commit")
    return Outcome(ended=Ended.SUCCEEDED, message_id=message.pk)


def hold(attempt: Attempt, declaration: Declaration) -> Restored:
    """
    Lock the row, which says that it runs, and restore its call with the object as it is now.

    Transaction: needs the attempt's. Raises: TokenLost, Cancelled, InstanceGone, what decoding the keywords raises.
    """
    message, alias = attempt.message, attempt.alias
    attempt.note_commit()
    reading = reading_of(message, declaration)
    is_cancelled, row = claim.hold(message, alias, reading)
    if is_cancelled:
        raise_if_cancelled(attempt)
    reach("after_stamp")
    instance = load(message, declaration, alias) if reading is None else loaded(message, alias, reading, row)
    attempt.restored = attempt.carry_over(rebuild(message, alias, declaration, instance))
    return attempt.restored


def prepare(attempt: Attempt, declaration: Declaration) -> None:
    """
    Run ``prepare`` hooks: the row is kept by a lease, and no transaction is open.
    """
    message, alias = attempt.message, attempt.alias
    transition = declaration.candidate.transition
    if not transition.prepare:
        return
    settle.keep(message, alias, message.timeout_seconds or PREPARE_LEASE)
    restored = attempt.restored = rebuild(message, alias, declaration, load(message, declaration, alias))
    guard(restored)
    attempt.is_prepared = True
    hooks.run_side_effects(restored.call, transition.prepare)
    settle.keep(message, alias, claim.LEASE)  # from here on the lock says that it runs


def run_effects(attempt: Attempt, restored: Restored) -> None:
    """
    Run side effects in order, and look between them whether somebody cancelled the work.
    """
    for place, effect in enumerate(restored.candidate.transition.side_effects):
        if place:
            raise_if_cancelled(attempt)
        hooks.run_side_effects(restored.call, (effect,))


def write(attempt: Attempt, restored: Restored) -> None:
    """
    Write the target, the history, the end of the row and the rows that follow.

    Raises: Superseded when the object moved away meanwhile, Cancelled, TokenLost.
    """
    message, alias = attempt.message, attempt.alias
    call, transition = restored.call, restored.candidate.transition
    rows = durable.rows_after_success(message, call, restored.candidate)
    change = settle.completion(message, State.SUCCEEDED, attempt.seconds)
    try:
        if transition.is_action:
            settle.write(change, alias)
            writer.insert_rows(rows, alias)
            tell_of_action(call, restored.candidate, restored.state)
        else:
            state = restored.state
            move = plan(call, state, transition.target, action=transition.action_name, event=transition.event)
            attempt.move = replace(move, rows=rows, change=change)
            writer.apply(attempt.move)
    except MoveLost:
        raise Superseded(f"the object left {restored.state!r} while the work ran") from None
    except (ChangeLost, TokenLost):
        raise_if_cancelled(attempt)
        raise TokenLost from None


def deliver(attempt: Attempt) -> Outcome:
    """
    Run what follows a transition: one callback, failure callback or next transition, and end its row with it.
    """
    message, alias = attempt.message, attempt.alias
    reach("before_callback")
    declaration = declaration_of(message)
    with transaction.atomic(using=alias):
        restored = hold(attempt, declaration)
        note = durable.deliver(message, restored)
        refuse_swallowed(restored.call)
        more = {} if note is None else {"last_error_message": settle.told(note)}
        try:
            settle.write(settle.completion(message, State.SUCCEEDED, attempt.seconds, **more), alias)
        except TokenLost:
            raise_if_cancelled(attempt)
            raise
        reach("before_commit")
    return Outcome(ended=Ended.SUCCEEDED, message_id=message.pk)


def tell(attempt: Attempt, outcome: Outcome) -> None:
    """
    Tell how a transition's attempt ended, and run what follows where the process wants no rows for it.
    """
    if attempt.restored is None or attempt.message.kind != Kind.TRANSITION:
        return
    call, candidate = attempt.restored.call, attempt.restored.candidate
    is_durable = call.tree.root.durable_callbacks
    if outcome.ended is Ended.SUCCEEDED:
        announce(signals.transition_finished, call, moved=True, move=attempt.move)
        if not is_durable:
            after = lambda: follow.follow(call, candidate, perform)  # noqa: E731
            transaction.on_commit(after, using=attempt.alias, robust=True)
    elif outcome.ended in (Ended.FAILED, Ended.CANCELLED) and outcome.error is not None:
        if not is_durable:
            hooks.run_callbacks(call, candidate.transition.failure_callbacks, exception=outcome.error)
        announce(signals.transition_failed, call, exception=outcome.error, move=attempt.move)
    elif outcome.ended in (Ended.SUPERSEDED, Ended.LOST) and attempt.is_prepared:
        hooks.run_callbacks(call, candidate.transition.failure_callbacks, exception=outcome.error)
