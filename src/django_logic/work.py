"""
The middle of a call: side effects, the write, and failed_state when they fail.

Runs under whatever `django_logic.locks.hold` holds; judging and callbacks are not done here.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from django.db import connections, transaction
from django.db.transaction import TransactionManagementError

from django_logic import conf, hooks, locks, writer
from django_logic.call import Call
from django_logic.moves import Move, plan
from django_logic.run import Run, performer_of, raise_if_blocked
from django_logic.tree import Candidate

__all__ = ["refuse_swallowed", "tell", "work", "write"]


def work(run: Run, candidate: Candidate, state: Any, kind: str) -> None:
    """
    Run the side effects and write the target; on failure write failed_state where one is declared.

    With a row lock all of it is undone together. With lock="cache" or "none" only the write is a transaction.
    """
    call, transition = run.call, candidate.transition
    if transition.performer is not None:
        performer_of(transition).accept(run, candidate, state)
        return
    is_apart = kind in ("cache", "none")
    try:
        with undo_point(call, candidate, is_apart):
            hooks.run_side_effects(call, transition.side_effects)
            refuse_swallowed(call, is_apart)
            if transition.is_action:
                tell(call, candidate, state)
            else:
                run.move = write_apart(run, candidate, state) if is_apart else write(call, candidate, state)
    except writer.MoveLost:
        raise
    except Exception as error:
        if run.is_committed or locks.is_transient(error):
            raise
        run.hook_error, run.move = error, None
        if transition.failed_state is None or not write_failed(run, candidate, state, kind):
            raise


def refuse_swallowed(call: Call, is_apart: bool = False) -> None:
    """
    Fail work whose hook swallowed a database error: the database has undone it already, or will.
    """
    if not is_apart and connections[call.alias].needs_rollback:
        raise TransactionManagementError(
            f"{call.label} of {call.subject}: a hook swallowed a database error, so its writes can't be kept."
            " Let the error pass, or wrap what may fail in transaction.atomic()."
        )


def undo_point(call: Call, candidate: Candidate, is_apart: bool) -> AbstractContextManager[Any]:
    """
    Return a savepoint where side effects have to be undone without losing the lock.

    Without failed_state nothing follows a failure, so the transaction around goes as a whole; an action has no
    write of its own that would notice a database error its hooks swallowed, the end of the savepoint does.
    """
    if is_apart or not (candidate.transition.failed_state is not None or candidate.transition.is_action):
        return nullcontext()
    return transaction.atomic(using=call.alias)


def write(call: Call, candidate: Candidate, state: Any) -> Move:
    """
    Write the success move of a declaration.
    """
    transition = candidate.transition
    move = plan(call, state, transition.target, action=transition.action_name, event=transition.event)
    writer.apply(move)
    return move


def tell(call: Call, candidate: Candidate, state: Any) -> None:
    """
    Tell of an action that declares an event.
    """
    transition = candidate.transition
    if transition.event:
        action = transition.action_name
        writer.tell(plan(call, state, state, action=action, event=transition.event, is_write=False))


def write_apart(run: Run, candidate: Candidate, state: Any) -> Move:
    """
    Write the success move in a transaction of its own, if the row still is where it was read.
    """
    call = run.call
    is_outermost = not connections[call.alias].in_atomic_block
    with transaction.atomic(using=call.alias):
        if is_outermost:
            run.note_commit()
        if locks.read(call, "row", whole=False) != state:
            raise writer.MoveLost
        return write(call, candidate, state)


def write_failed(run: Run, candidate: Candidate, state: Any, kind: str) -> bool:
    """
    Write failed_state; return False, with a log line, where that is refused: the first error stays the one told.
    """
    call, transition = run.call, candidate.transition
    own_lock = next((process.lock for process in reversed(candidate.path) if process.lock), None) or conf.lock_kind()
    try:
        with locks.hold(call, own_lock) if kind == "none" else nullcontext(), transaction.atomic(using=call.alias):
            if kind in ("cache", "none"):
                raise_if_blocked(call)
                run.state = (locks.read(call, "row", whole=False),)
                if run.state[0] != state:
                    raise writer.MoveLost
            move = plan(call, state, transition.failed_state, action=transition.action_name, is_success=False)
            writer.apply(move)
    except writer.MoveLost:
        hooks.logger.warning("%s: %s moved meanwhile, failed_state was not written", call.label, call.subject)
        return False
    except Exception:
        hooks.logger.exception(
            "%s: failed_state %r of %s was not written", call.label, transition.failed_state, call.subject
        )
        return False
    run.move = move
    return True
