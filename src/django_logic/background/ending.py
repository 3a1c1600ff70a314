"""
How an attempt ends badly: another try, a pause that costs nothing, the failure path, or a row nobody can run.
"""

from __future__ import annotations

from django.db import DatabaseError, transaction

from django_logic import conf, hooks, locks
from django_logic.background import claim, settle
from django_logic.background.claim import TokenLost
from django_logic.background.exceptions import AttemptFailed, Cancelled, PermanentFailure, Snooze
from django_logic.background.failing import write_failure
from django_logic.background.models import Cancellation, Kind, State, TransitionMessage
from django_logic.background.progress import Attempt, Superseded, raise_if_cancelled
from django_logic.background.restore import InstanceGone, Unknown, declared
from django_logic.background.retry import pause_after, retry_of
from django_logic.background.settle import Ended, Outcome, told
from django_logic.moves import MoveLost

__all__ = ["give_up", "give_up_spent", "is_spent", "record"]

#: How long a row that could not be failed waits, as while somebody holds its object; seconds.
BUSY_PAUSE = 5.0
DEFERRED = "deferred"
#: How long a row waits for code that knows it: a share of its age, within bounds; seconds.
SHARE_OF_AGE, SHORTEST_WAIT, LONGEST_WAIT = 0.25, 10.0, 600.0


def is_spent(message: TransitionMessage) -> bool:
    """
    Tell a row whose last attempt had begun already: its claim counted none.
    """
    return message.attempts_started <= message.errors_count


def record(attempt: Attempt, error: Exception) -> Outcome:
    """
    Write how an attempt ended badly. Everything it wrote itself is undone by now.
    """
    message, alias = attempt.message, attempt.alias
    ended = Outcome(ended=Ended.LOST, message_id=message.pk)
    try:
        match error if isinstance(error, (InstanceGone, Superseded)) else asked_to_stop(attempt) or error:
            case InstanceGone():
                ended = close(attempt, State.UNRESTORABLE, error)
            case Superseded():
                ended = close(attempt, State.SUPERSEDED, error)
            case Cancelled() as asked:
                ended = give_up(attempt, asked, State.CANCELLED)
            case Snooze() as wish:
                settle.put_back(message, alias, wish.seconds, note=told(wish, "snoozed"))
                ended = Outcome(ended=Ended.SNOOZED, message_id=message.pk, pause=wish.seconds)
            case Unknown() as unknown:
                ended = defer(attempt, unknown)
            case _:
                ended = fail(attempt, error)
    except TokenLost:
        hooks.logger.warning("%s: attempt %s lost its row, its end was not recorded", message, message.attempts_started)
    return ended


def asked_to_stop(attempt: Attempt) -> Cancelled | None:
    """
    Return what cancels the row, if somebody asked for that: no pause comes before it.
    """
    try:
        raise_if_cancelled(attempt)
    except Cancelled as asked:
        return asked
    return None


def close(attempt: Attempt, state: State, error: Exception) -> Outcome:
    """
    End a row without any hook: the object has gone another way, or is gone.
    """
    note = told(str(error), str(state))
    change = settle.completion(attempt.message, state, attempt.seconds, last_error_message=note)
    settle.write(change, attempt.alias)
    hooks.logger.warning("%s: %s", attempt.message, note)
    return Outcome(ended=Ended(str(state)), message_id=attempt.message.pk, error=error)


def defer(attempt: Attempt, error: Unknown) -> Outcome:
    """
    Put back a row this code does not know; newer code may, as during a deploy. Too old a row is closed.
    """
    message = attempt.message
    age = seconds_unknown(message)
    if age >= conf.unrestorable_hours() * 3600:
        return close(attempt, State.UNRESTORABLE, error)
    pause = min(LONGEST_WAIT, max(SHORTEST_WAIT, age * SHARE_OF_AGE))
    settle.put_back(message, attempt.alias, pause, note=told(str(error), DEFERRED), is_first=not age)
    hooks.logger.warning("%s: %s. Put back for %.0f s", message, error, pause)
    return Outcome(ended=Ended.DEFERRED, message_id=message.pk, error=error, pause=pause)


def seconds_unknown(message: TransitionMessage) -> float:
    """
    Return for how long this row has met code that does not know it; its last error says since when.
    """
    was_deferred = message.last_error_message.startswith(f"[{DEFERRED}]")
    if not was_deferred or message.started_at is None or message.last_error_dt is None:
        return 0.0
    return (message.started_at - message.last_error_dt).total_seconds()


def fail(attempt: Attempt, error: Exception) -> Outcome:
    """
    Let another attempt follow after a pause, or give up.
    """
    message = attempt.message
    transition = declared(message)
    no_retry = getattr(transition, "no_retry_on", ())
    if isinstance(error, (PermanentFailure, *no_retry)) or message.attempts_started >= message.attempts_allowed:
        return give_up(attempt, error, State.FAILED)
    pause = pause_after(retry_of(transition), message.attempts_started)
    settle.fail_attempt(message, attempt.alias, told(error), pause)
    hooks.logger.warning(
        "%s: attempt %d of %d failed, the next one in %.0f s: %r",
        message,
        message.attempts_started,
        message.attempts_allowed,
        pause,
        error,
        exc_info=error,
    )
    return Outcome(ended=Ended.RETRY, message_id=message.pk, error=error, pause=pause)


def give_up_spent(attempt: Attempt) -> Outcome:
    """
    Give up a row that has no attempt left, its last one being lost.
    """
    text = attempt.message.last_error_message or "every attempt is spent"
    return give_up(attempt, AttemptFailed(text), State.FAILED, is_measured=False)


def give_up(attempt: Attempt, error: Exception, state: State, *, is_measured: bool = True) -> Outcome:
    """
    Take the failure path: failed_state, the end of the row and the failure callbacks' rows, in one transaction.

    A row that follows a transition has no state to fail to: it waits for an operator, unless it was cancelled.
    """
    message, alias = attempt.message, attempt.alias
    if message.kind != Kind.TRANSITION and state is not State.CANCELLED:
        settle.fail_attempt(message, alias, told(error), None)
        hooks.logger.error("%s: every attempt is spent: %r", message, error, exc_info=error)
        return Outcome(ended=Ended.FAILED, message_id=message.pk, error=error)
    more = {"errors_count": message.attempts_started, "last_error_message": told(error)}
    if state is State.CANCELLED:
        more |= {"errors_count": message.errors_count, "attempts_started": message.attempts_started}
    change = settle.completion(message, state, attempt.seconds if is_measured else None, **more)
    try:
        with transaction.atomic(using=alias):
            claim.hold(message, alias)
            write_failure(attempt, error, change)
            Cancellation.objects.using(alias).filter(message_id=message.pk).delete()
    except DatabaseError as error_now:
        if not locks.is_transient(error_now):
            raise
        if state is State.CANCELLED:
            settle.put_back(message, alias, BUSY_PAUSE, note=told(error))
        else:
            settle.fail_attempt(message, alias, told(error), BUSY_PAUSE)
        return Outcome(ended=Ended.RETRY, message_id=message.pk, error=error, pause=BUSY_PAUSE)
    except (Superseded, MoveLost) as moved:
        return close(attempt, State.SUPERSEDED, Superseded(str(moved) or "the object was moved by other means"))
    return Outcome(ended=Ended(str(state)), message_id=message.pk, error=error)
