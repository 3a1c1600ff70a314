"""
The life of one synchronous call: gate, prepare, lock, judge, work, write, commit, callbacks.

`perform` tells it top to bottom; its steps are siblings that share a `Run`.
"""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.transaction import TransactionManagementError

from django_logic import hooks, judge, locks, signals, writer
from django_logic.call import Call, open_calls
from django_logic.exceptions import AlreadyInProgress, TransitionNotAllowed
from django_logic.follow import follow_after_commit, has_follow_up
from django_logic.run import Run, announce, lock_of, performer_of, raise_if_blocked, reads_whole, version_of
from django_logic.subject import is_loaded, recall, remember_state, state_of, times_of
from django_logic.tree import Candidate
from django_logic.work import work, write

__all__ = ["perform"]

MANUAL = (
    "{label}: autocommit is off, so what has to run after the commit never would. Use transaction.atomic() instead of"
    " committing by hand."
)


def perform(call: Call) -> bool:
    """
    Run a call; return True when it moved the object or did its work, False for a duplicate.

    Transaction: opens its own or a savepoint in the caller's; callbacks run after the outermost commit.
    Raises: TransitionNotAllowed for a refusal, and whatever a guard or side effect raises.
    """
    run = Run(call)
    announce(signals.transition_started, call)
    try:
        if not go_fast(run):
            prepare(run)
            go_locked(run)
    except Exception as error:
        if run.is_committed and run.hook_error is None:
            end_well(run)  # only work that a hook scheduled for after the commit failed: the move stands
        else:
            end_badly(run, run.hook_error or error)
        raise
    if run.hook_error is not None:  # failed_state is committed; the error still belongs to the caller
        end_badly(run, run.hook_error)
        raise run.hook_error
    if run.is_duplicate:
        if run.prepared is not None:
            compensate(run, judge.duplicate_error(call, state_of(call.column, call.instance)))
        announce(signals.transition_finished, call, moved=False, move=None)
        return False
    end_well(run)
    return True


def go_fast(run: Run) -> bool:
    """
    Try the move as one conditional statement on the state in memory; False leaves it to the locked path.

    Only for moves with nothing to do under the lock, outside the caller's transaction: there a lost race on the
    sequence would spoil his work.
    """
    call = run.call
    candidate = fast_candidate(call)
    if candidate is None:
        return False
    state = state_of(call.column, call.instance)
    run.chosen = candidate
    try:
        with locks.translated(call):
            if candidate.transition.performer is not None:
                performer_of(candidate.transition).accept(run, candidate, state)
            else:
                run.move = write(call, candidate, state)
    except (writer.MoveLost, writer.SequenceTaken, AlreadyInProgress):
        run.chosen = None
        return False
    return True


def fast_candidate(call: Call) -> Candidate | None:
    """
    Return the one declaration that may take the fast path, None when there is none.
    """
    named = judge.candidates_of(call)
    if not named or call.expected_version is not None:
        return None
    if any(needs_lock(candidate) for candidate in named) or lock_of(call) != "row":
        return None
    if not is_loaded(call.column, call.instance) or call.instance._state.adding or call.column.listens():
        return None
    connection = connections[call.alias]
    if connection.in_atomic_block or not connection.get_autocommit() or call.key in open_calls.get():
        return None
    state = state_of(call.column, call.instance)
    speaking = [candidate for candidate in named if state in candidate.sources]
    return speaking[0] if len(speaking) == 1 and is_its_own_gate(call, speaking[0], state) else None


def is_its_own_gate(call: Call, candidate: Candidate, state: Any) -> bool:
    """
    Tell whether nobody has to be asked for open background work: there is none, or the write itself would fail.
    """
    performer = candidate.transition.performer
    if performer is None:
        return not call.tree.has_background
    return performer_of(candidate.transition).is_gate(call, candidate, state)


def needs_lock(candidate: Candidate) -> bool:
    """
    Tell whether a declaration has anything to do while the row is held.
    """
    transition = candidate.transition
    fails_here = transition.failed_state is not None and transition.performer is None
    return candidate.has_work or transition.is_action or fails_here


def prepare(run: Run) -> None:
    """
    Run ``prepare`` hooks of a call that would be fit now: no lock is held and no transaction of ours is open.
    """
    call = run.call
    kind = lock_of(call)
    if kind != "none":
        raise_if_blocked(call)
    if not any(candidate.transition.prepares_in_call for candidate in judge.candidates_of(call)):
        return
    state = locks.read(call, "none", whole=reads_whole(call))
    remember_state(call.column, call.instance, state)
    verdict = judge.examine(call, state, lambda: version_of(call))
    if verdict.candidate is None or not verdict.candidate.transition.prepares_in_call:
        return  # the locked path says why, on what it reads then
    run.prepared = verdict.candidate
    try:
        hooks.run_side_effects(call, verdict.candidate.transition.prepare)
    except Exception as error:
        run.hook_error = error
        raise
    finally:
        remember_state(call.column, call.instance, state)  # whatever a hook assigned, nothing was written


def go_locked(run: Run) -> None:
    """
    Lock and read the row, judge what was read, do the work and write; everything or nothing.
    """
    call = run.call
    kind = lock_of(call)
    times: dict[str, Any] = {}
    try:
        is_outermost = kind in ("row", "nowait") and not connections[call.alias].in_atomic_block
        is_manual = is_manually_committed(call)
        with locks.translated(call), locks.hold(call, kind):
            if is_outermost:
                run.note_commit()
            run.state = (locks.read(call, kind, whole=reads_whole(call)),)
            remember_state(call.column, call.instance, run.state[0])
            times = times_of(call.column, call.instance)
            judge_and_work(run, kind, is_manual=is_manual)
    except writer.MoveLost:
        state = locks.read(call, "none", whole=False)
        remember_state(call.column, call.instance, state)
        raise judge.lost_error(call, state) from None
    except writer.SequenceTaken as error:
        recall(call.instance, times)
        remember_state(call.column, call.instance, run.state[0])
        raise judge.busy_error(call, "another move slipped past the lock. Try again shortly") from error
    except BaseException:
        if run.is_committed:
            raise
        run.move = None
        recall(call.instance, times)
        for state in run.state:
            remember_state(call.column, call.instance, state)
        raise


def judge_and_work(run: Run, kind: str, *, is_manual: bool) -> None:
    """
    Do what the lock is held for: gate, judge, work.
    """
    call, state = run.call, run.state[0]
    if kind != "none":
        raise_if_blocked(call)
    choose(run, state)
    if run.chosen is not None:
        if is_manual and has_follow_up(run.chosen):
            raise TransactionManagementError(MANUAL.format(label=call.label))
        work(run, run.chosen, state, kind)
    if run.move is None:  # whatever a hook assigned, nothing was written
        remember_state(call.column, call.instance, state)


def choose(run: Run, state: Any) -> None:
    """
    Judge the call on the state that was read; a duplicate leaves nothing chosen.
    """
    call = run.call
    verdict = judge.examine(call, state, lambda: version_of(call))
    if verdict.reasons:
        raise judge.refuse(call, state, verdict.reasons)
    run.is_duplicate = verdict.is_duplicate
    if verdict.candidate is None:
        return
    needs_preparation = run.prepared is not None or verdict.candidate.transition.prepares_in_call
    if needs_preparation and verdict.candidate is not run.prepared:
        # The object moved between the pre-check and the lock: what was prepared, if anything, was for another way on.
        raise judge.lost_error(call, state)
    run.chosen = verdict.candidate


def end_well(run: Run) -> None:
    """
    Tell that the call did what was asked, and schedule what follows.
    """
    transition = run.chosen.transition if run.chosen is not None else None
    if transition is not None and transition.performer is not None:
        announce(signals.transition_accepted, run.call, move=run.move)
        performer_of(transition).follow(run)
        return
    announce(signals.transition_finished, run.call, moved=True, move=run.move)
    follow_after_commit(run, perform)


def end_badly(run: Run, error: Exception) -> None:
    """
    Compensate and tell, after a failure or a refusal; the caller gets the error afterwards.
    """
    is_refusal = isinstance(error, TransitionNotAllowed) and error is not run.hook_error
    transition = run.chosen.transition if run.chosen is not None else None
    if transition is not None and transition.performer is not None:
        pass  # no hook has run yet, so there is nothing to take back
    elif transition is not None and (not is_refusal or transition.side_effects):
        hooks.run_callbacks(run.call, transition.failure_callbacks, exception=error)
    else:
        compensate(run, error)
    signal = signals.transition_refused if is_refusal else signals.transition_failed
    extra = {} if is_refusal else {"move": run.move}
    announce(signal, run.call, exception=error, **extra)


def compensate(run: Run, error: Exception) -> None:
    """
    Let failure callbacks take back what ``prepare`` did for a call that then did not happen.
    """
    if run.prepared is not None:
        hooks.run_callbacks(run.call, run.prepared.transition.failure_callbacks, exception=error)


def is_manually_committed(call: Call) -> bool:
    """
    Tell whether autocommit is off, so that nobody will tell of the commit.
    """
    connection = connections[call.alias]
    return not connection.in_atomic_block and not connection.get_autocommit()
