"""
Moving a whole queryset: set by set where nothing is asked of single objects, row by row otherwise.

Both ways end in the one writer. A set-based move sends no signals; its audit rows are contributed as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from django.db import connections, models, transaction

from django_logic import conf, extension, judge, locks, writer
from django_logic.call import Call
from django_logic.engine import perform
from django_logic.exceptions import Refusal, TransitionNotAllowed, TransitionTemporarilyUnavailable
from django_logic.moves import Move, plan
from django_logic.process import Process, call_of
from django_logic.run import lock_of, performer_of
from django_logic.states import plain
from django_logic.tree import Candidate

__all__ = ["BulkResult", "bulk_transition"]

#: Called after each chunk with how many objects are done and how many there are.
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class BulkResult:
    """
    Say what became of each object of a bulk move.

    ``refused`` maps a refusal code to primary keys. ``errors`` maps a primary key to what a hook raised;
    the other objects went on.
    """

    moved: int = 0
    duplicates: int = 0
    refused: dict[str, list[Any]] = field(default_factory=dict)
    errors: dict[Any, Exception] = field(default_factory=dict)

    def refuse(self, code: str, pk: Any) -> None:
        """
        Count one object as refused.
        """
        self.refused.setdefault(code, []).append(pk)


def bulk_transition(
    queryset: models.QuerySet[Any],
    action: str,
    *,
    process_name: str = "process",
    chunk_size: int = 1000,
    progress: Progress | None = None,
    **keywords: Any,
) -> BulkResult:
    """
    Run one action on every object of a queryset; ``keywords`` are those of a single call (user, actor, reason, …).

    Each object has its own transition_id, all share one root_id. Objects are locked in the order of their keys.
    Transaction: one for each chunk of a set-based move, else one for each object; savepoints in the caller's.
    Raises: UnknownAction, TypeError for a keyword of the engine, ValueError for a chunk_size below 1.
    """
    if chunk_size < 1:
        raise ValueError(f"bulk_transition: chunk_size must be at least 1; found {chunk_size}.")
    alias = queryset.select_for_update().db  # the alias that writes of this queryset go to
    template = template_call(queryset.model, alias, action, process_name, keywords)
    pks = sorted(
        set(queryset.values_list("pk", flat=True))
    )  # one order for all callers, so that none waits in a circle
    run_chunk = move_set if is_set_based(template) else move_each
    result = BulkResult()
    for start in range(0, len(pks), chunk_size):
        chunk = pks[start : start + chunk_size]
        merge(result, run_chunk(template, chunk))
        if progress is not None:
            progress(start + len(chunk), len(pks))
    return result


def template_call(
    model: type[models.Model], alias: str, action: str, process_name: str, keywords: dict[str, Any]
) -> Call:
    """
    Make the call that every object's call is a copy of; refuse an action nobody declares.
    """
    process: Process = getattr(model(), process_name)
    call = replace(call_of(process, action=action, keywords=dict(keywords)), alias=alias)
    if not judge.candidates_of(call):
        raise judge.refuse(call, None, judge.examine(call, None).reasons)
    return call


def is_set_based(call: Call) -> bool:
    """
    Tell whether nothing is asked of single objects, so that a set can move in one statement.
    """
    named = judge.candidates_of(call)
    if any(candidate.transition.is_background for candidate in named) and conf.sync_mode():
        return False  # each attempt runs in its call
    return (
        call.expected_version is None
        and lock_of(call) in ("row", "nowait")
        and not call.column.listens()
        and not any(acts_on_objects(candidate) for candidate in named)
    )


def acts_on_objects(candidate: Candidate) -> bool:
    """
    Tell whether a declaration has guards, hooks or a follow-up for each object.
    """
    transition = candidate.transition
    if transition.performer is not None:
        return candidate.has_work
    follows = transition.callbacks or transition.next_transition or transition.failure_callbacks
    return bool(candidate.has_work or transition.is_action or follows)


def move_set(call: Call, pks: Sequence[Any]) -> BulkResult:
    """
    Move a chunk in one transaction; when the database gives way to another one, all of it is refused as locked.
    """
    try:
        with locks.translated(call), transaction.atomic(using=call.alias):
            return move_locked_set(call, pks)
    except TransitionTemporarilyUnavailable:
        return BulkResult(refused={"locked": list(pks)})


def move_locked_set(call: Call, pks: Sequence[Any]) -> BulkResult:
    """
    Lock a chunk, judge each state once, and write each kind of move in one go.
    """
    result = BulkResult()
    kinds: dict[tuple[Any, Candidate], list[Any]] = {}
    verdicts: dict[Any, judge.Verdict] = {}
    states = list(locked_states(call, pks))
    busy = busy_keys(call, [pk for pk, _state in states])
    for pk, state in states:
        if str(pk) in busy:
            result.refuse(busy[str(pk)].code, pk)
            continue
        if state not in verdicts:
            verdicts[state] = judge.examine(call, state)
        verdict = verdicts[state]
        if verdict.candidate is not None:
            kinds.setdefault((state, verdict.candidate), []).append(pk)
        elif verdict.is_duplicate:
            result.duplicates += 1
        else:
            result.refuse(verdict.reasons[0].code, pk)
    for (state, candidate), movable in kinds.items():
        result.moved += move_kind(call, candidate, state, movable)
    return result


def busy_keys(call: Call, pks: Sequence[Any]) -> Mapping[str, Refusal]:
    """
    Return which of these objects have background work open; asks nothing where the process declares none.
    """
    if not call.tree.has_background:
        return {}
    return extension.blocked(call.column, call.alias, [str(pk) for pk in pks])


def move_kind(call: Call, candidate: Candidate, state: Any, pks: Sequence[Any]) -> int:
    """
    Write one kind of move for all objects that make it, or hand it to whoever takes its work over.
    """
    if candidate.transition.performer is None:
        return writer.apply_many(move_of(call, candidate, state), pks)
    performer = performer_of(candidate.transition)
    count = performer.accept_many(call, candidate, state, pks)
    performer.follow_many(call, candidate)
    return count


def locked_states(call: Call, pks: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """
    Lock a chunk's rows in the order of their keys and yield each owner's key and state.
    """
    column = call.column
    features = connections[call.alias].features
    rows: models.QuerySet[Any] = models.QuerySet(model=call.column.model, using=call.alias)
    rows = rows.filter(pk__in=pks).order_by("pk")
    if features.has_select_for_update:
        nowait = lock_of(call) == "nowait" and features.has_select_for_update_nowait
        rows = rows.select_for_update(nowait=nowait, no_key=features.has_select_for_no_key_update)
    else:
        locks.take_write_lock(column.owner, call.alias, nowait=lock_of(call) == "nowait")
    for pk, state in rows.values_list(column.owner._meta.pk.name, column.field.attname):
        yield pk, plain(state)


def move_of(call: Call, candidate: Candidate, state: Any) -> Move:
    """
    Plan the move all objects of one kind make; it speaks of no single instance.
    """
    transition = candidate.transition
    move = plan(call, state, transition.target, action=transition.action_name, event=transition.event)
    return replace(move, instance=None)


def move_each(call: Call, pks: Sequence[Any]) -> BulkResult:
    """
    Run the call on each object of a chunk, each as if it were called alone.
    """
    result = BulkResult()
    rows: models.QuerySet[Any] = models.QuerySet(model=call.column.model, using=call.alias)
    for instance in rows.filter(pk__in=pks).order_by("pk"):
        single = replace(call, instance=instance, transition_id=uuid4(), context={})
        try:
            moved = perform(single)
        except TransitionNotAllowed as refusal:
            result.refuse(str(refusal.reason), instance.pk)
        except Exception as error:  # one object's failure is told and does not stop the others
            result.errors[instance.pk] = error
        else:
            result.moved += moved
            result.duplicates += not moved
    return result


def merge(result: BulkResult, found: BulkResult) -> None:
    """
    Add a chunk's outcome to the whole.
    """
    result.moved += found.moved
    result.duplicates += found.duplicates
    for code, pks in found.refused.items():
        result.refused.setdefault(code, []).extend(pks)
    result.errors.update(found.errors)
