"""
Judge what is left when the faults have stopped and nothing is open any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from django.utils.module_loading import import_string

from django_logic.background.models import Kind, State, TransitionMessage
from django_logic.models import StatusChange
from tests.worker_app.ledger import Ledger
from tests.worker_app.models import Effect, Job
from tests.worker_app.process import MAX_ERRORS

ACTION = "act"
HOOKS = (Kind.CALLBACK, Kind.FAILURE_CALLBACK)


def violations(jobs: Iterable[Job], accepted: int | None = None, ledger: Ledger | None = None) -> list[str]:
    """
    List what is wrong with these jobs, `accepted` calls of which were accepted.

    Each accepted call has ended once; the history has no gap and ends in the stored state; a success left one effect,
    one move to its target and one row for each thing that follows, anything else left none; no row had more attempts
    than it may. With a `ledger`, each callback has run, and in the order of the rows of its job.
    """
    found = []
    asked = 0
    for job in jobs:
        job.refresh_from_db()
        rows = list(TransitionMessage.objects.for_instance(job).order_by("id"))
        asked += sum(row.kind == Kind.TRANSITION and row.parent_id is None for row in rows)
        texts = [*_of_history(job), *_of_rows(job, rows), *_of_what_follows(rows), *_of_order(rows)]
        if ledger is not None:
            texts += _of_callbacks(rows, ledger)
        found += [f"job {job.pk}: {text}" for text in texts]
    if accepted is not None and accepted != asked:
        found.append(f"{accepted} calls were accepted and {asked} rows are there")
    return found


def _of_history(job: Job) -> Iterator[str]:
    moves = list(job.process.history.values_list("sequence", "from_state", "to_state"))
    if [sequence for sequence, _, _ in moves] != list(range(1, len(moves) + 1)):
        yield f"its sequences are {[sequence for sequence, _, _ in moves]}"
    states = ["new", *(to_state for _, _, to_state in moves)]
    if [from_state for _, from_state, _ in moves] != states[:-1]:
        yield f"its history is broken: {moves}"
    if states[-1] != job.state:
        yield f"its state is {job.state!r} and its history ends in {states[-1]!r}"


def _of_rows(job: Job, rows: list[TransitionMessage]) -> Iterator[str]:
    effects = Counter(Effect.objects.filter(job_id=job.pk).values_list("transition_id", flat=True))
    moves = Counter(job.process.history.filter(to_state="done").values_list("transition_id", flat=True))
    for row in rows:
        if not row.is_completed:
            yield f"row {row.pk} ({row.label}) is open: {row.last_error_message}"
        if row.attempts_started > (row.max_errors or MAX_ERRORS):
            yield f"row {row.pk} had {row.attempts_started} attempts"
        if row.kind != Kind.TRANSITION:
            continue
        wanted = int(row.outcome == State.SUCCEEDED)
        found, moved = effects.pop(row.transition_id, 0), moves.pop(row.transition_id, 0)
        if found != wanted:
            yield f"row {row.pk} ended {row.outcome!r} with {found} effects"
        if row.transition_name != ACTION and moved != wanted:
            yield f"row {row.pk} ended {row.outcome!r} with {moved} moves to its target"
    if effects:
        yield f"effects of no row: {dict(effects)}"


def _of_what_follows(rows: list[TransitionMessage]) -> Iterator[str]:
    for row in rows:
        if row.kind == Kind.NEXT and row.outcome == State.SUCCEEDED:
            children = _children_of(row)
            # A refused one says so, as an earlier error may; marks in brackets tell of earlier attempts.
            may_be_refused = row.last_error_message[:1] not in ("", "[")
            if len(children) > 1 or not (children or may_be_refused):
                yield f"row {row.pk} ({row.label}) led to {len(children)} transitions: {row.last_error_message}"
        if row.kind != Kind.TRANSITION or not row.is_completed:
            continue
        wanted = _declared_after(row)
        found = [(each.kind, each.hook_name) for each in rows if _follows(each, row)]
        if found != wanted:
            yield f"row {row.pk} ended {row.outcome!r} and is followed by {found} instead of {wanted}"


def _of_order(rows: list[TransitionMessage]) -> Iterator[str]:
    # A claim's own time is when its statement arrived, which may be before it saw the end of the row ahead.
    ended = [row for row in rows if row.kind != Kind.TRANSITION and row.completed_at]
    for before, after in pairwise(ended):
        if after.kind == Kind.NEXT and any(began < before.completed_at for began in _children_of(after).values()):
            yield f"row {after.pk} ({after.label}) began before row {before.pk} ({before.label}) had ended"


def _of_callbacks(rows: list[TransitionMessage], ledger: Ledger) -> Iterator[str]:
    last_end = float("-inf")
    for row in rows:
        if row.kind not in HOOKS or row.outcome != State.SUCCEEDED:
            continue
        runs = ledger.entries(row.hook_name, transition_id=row.transition_id)
        ends = [run.at for run in runs if run.phase == "stop"]
        if not ends:
            yield f"row {row.pk} ({row.label}) ended and its hook never did"
            continue
        if runs[0].at < last_end:
            yield f"{row.label} (row {row.pk}) began before the callback ahead of it had ended"
        last_end = max(ends)


def _follows(each: TransitionMessage, row: TransitionMessage) -> bool:
    return each.kind != Kind.TRANSITION and each.transition_id == row.transition_id


def _declared_after(row: TransitionMessage) -> list[tuple[str, str]]:
    """
    Return kind and hook of each row that has to follow one that ended, in their order.
    """
    process = import_string(row.process_class)
    (declared,) = [each for each in process.transitions if each.action_name == row.transition_name]
    if not process.durable_callbacks or row.outcome not in (State.SUCCEEDED, State.FAILED):
        return []
    if row.outcome == State.FAILED:
        return [(Kind.FAILURE_CALLBACK.value, hook.__name__) for hook in declared.failure_callbacks]
    after = [(Kind.CALLBACK.value, hook.__name__) for hook in declared.callbacks]
    if declared.next_transition is not None:
        after.append((Kind.NEXT.value, declared.next_transition))
    return after


def _children_of(row: TransitionMessage) -> dict[Any, Any]:
    """
    Return what a row has started: ids of transitions and when each began.
    """
    moved = StatusChange.objects.filter(parent_id=row.transition_id).values_list("transition_id", "occurred_at")
    asked = TransitionMessage.objects.filter(parent_id=row.transition_id, kind=Kind.TRANSITION)
    began: dict[Any, Any] = {}
    for key, at in (*moved, *asked.values_list("transition_id", "created")):
        began[key] = min(at, began.get(key, at))
    return began
