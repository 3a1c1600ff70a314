"""
Judge what is left when the faults have stopped and nothing is open any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from django_logic.background.models import State, TransitionMessage
from tests.worker_app.models import Effect, Job
from tests.worker_app.process import MAX_ERRORS

ACTION = "act"


def violations(jobs: Iterable[Job], accepted: int | None = None) -> list[str]:
    """
    List what is wrong with these jobs, `accepted` calls of which were accepted.

    Each accepted call has ended once; the history has no gap and ends in the stored state; a success left one effect
    and one move to its target, anything else left none; no row had more attempts than it may.
    """
    found = []
    messages = 0
    for job in jobs:
        job.refresh_from_db()
        rows = list(TransitionMessage.objects.for_instance(job).order_by("id"))
        messages += sum(row.kind == "transition" for row in rows)
        found += [f"job {job.pk}: {text}" for text in (*_of_history(job), *_of_rows(job, rows))]
    if accepted is not None and accepted != messages:
        found.append(f"{accepted} calls were accepted and {messages} rows are there")
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
    effects = Counter(str(id) for id in Effect.objects.filter(job_id=job.pk).values_list("transition_id", flat=True))
    moves = Counter(str(change.transition_id) for change in job.process.history if change.to_state == "done")
    for row in rows:
        if not row.is_completed:
            yield f"row {row.pk} ({row.label}) is open: {row.last_error_message}"
        if row.attempts_started > (row.max_errors or MAX_ERRORS):
            yield f"row {row.pk} had {row.attempts_started} attempts"
        if row.kind != "transition":
            continue
        wanted = int(row.outcome == State.SUCCEEDED)
        found, moved = effects.pop(str(row.transition_id), 0), moves.pop(str(row.transition_id), 0)
        if found != wanted:
            yield f"row {row.pk} ended {row.outcome!r} with {found} effects"
        if row.transition_name != ACTION and moved != wanted:
            yield f"row {row.pk} ended {row.outcome!r} with {moved} moves to its target"
    if effects:
        yield f"effects of no row: {dict(effects)}"
