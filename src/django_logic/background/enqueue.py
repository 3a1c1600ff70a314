"""
What a background call does: one row and the busy state in one transaction, then a word to the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError, connections, transaction
from django.utils import timezone

from django_logic import conf, locks, numbers, tracing, wakeup, writer
from django_logic.background import codec
from django_logic.background.durable import is_delivering, message_values
from django_logic.background.gate import in_flight_refusal
from django_logic.background.models import NEVER, ONE_UNCOMPLETED, Kind, TransitionMessage, never
from django_logic.background.people import stored_user
from django_logic.background.runner import failure_of, run_row
from django_logic.background.transitions import BackgroundDeclaration
from django_logic.call import Call
from django_logic.clock import FromNow
from django_logic.follow import chain_length
from django_logic.moves import MoveLost, plan
from django_logic.rows import OBJECT_KEY, TRANSITION_ID, Row
from django_logic.run import Run, blocked_error, lock_of, raise_if_blocked
from django_logic.subject import instance_key, remember_state
from django_logic.tree import Candidate, dotted

__all__ = ["performer"]


class Enqueue:
    """
    Perform background declarations: `django_logic.run.Performer`.
    """

    def accept(self, run: Run, candidate: Candidate, state: Any) -> None:
        """
        Write the row and the busy state; where the object is busy already, as after a lost row, the row alone.

        Transaction: the call's; with lock="cache" one of its own, on the row as it is then.
        Raises: AlreadyInProgress, KwargsSerializationError, MoveLost.
        """
        call, transition = run.call, declaration(candidate)
        is_apart = lock_of(call) == "cache"
        row = Row(model=TransitionMessage, values=message_of(call, candidate, transition))
        try:
            with transaction.atomic(using=call.alias) if is_apart else nullcontext():
                if is_apart:
                    look_again(call, state)
                if transition.in_progress_state in (None, state):
                    writer.insert_rows((row,), call.alias)
                else:
                    busy = plan(
                        call, state, transition.in_progress_state, action=transition.action_name, is_success=False
                    )
                    writer.apply(replace(busy, rows=(row,)))
                    run.move = busy
        except IntegrityError as error:
            if ONE_UNCOMPLETED not in str(error):
                raise
            raise blocked_error(call, in_flight_refusal(None, transition.action_name)) from error

    def is_gate(self, call: Call, candidate: Candidate, state: Any) -> bool:
        """
        Tell whether the row goes with a move from this state, where the database lets one row be open.
        """
        busy = candidate.transition.in_progress_state
        return busy is not None and busy != state and connections[call.alias].vendor == "postgresql"

    def follow(self, run: Run) -> None:
        """
        Wake the workers after the commit; in sync mode run the attempt here and now.

        Raises: in sync mode what the attempt's hooks raised, once it is recorded.
        """
        call = run.call
        if run.chosen is None:
            return
        if not conf.sync_mode():
            wakeup.notify_after_commit(wakeup.WORK, call.alias, declaration(run.chosen).queue_name)
        elif delay_of(call) == 0 and is_delivering.get():
            transaction.on_commit(lambda: run_inline(call), using=call.alias, robust=True)
        elif delay_of(call) == 0:
            run_inline(call)

    def accept_many(self, call: Call, candidate: Candidate, state: Any, pks: Sequence[Any]) -> int:
        """
        Write the rows and busy states of a set of objects, in one statement for each table.

        Transaction: the caller's, in which the objects are locked, in that state and without open work.
        """
        transition = declaration(candidate)
        values = {**message_of(call, candidate, transition), "instance_id": OBJECT_KEY, "transition_id": TRANSITION_ID}
        values["root_id"] = call.root_id
        row = Row(model=TransitionMessage, values=values)
        if transition.in_progress_state in (None, state):
            return writer.insert_for_many(row, pks, call.alias)
        busy = plan(call, state, transition.in_progress_state, action=transition.action_name, is_success=False)
        return writer.apply_many(replace(busy, instance=None, rows=(row,)), pks)

    def follow_many(self, call: Call, candidate: Candidate) -> None:
        """
        Wake the workers after the commit.
        """
        wakeup.notify_after_commit(wakeup.WORK, call.alias, declaration(candidate).queue_name)


performer = Enqueue()


def declaration(candidate: Candidate) -> BackgroundDeclaration:
    """
    Return the declaration as the kind it is.
    """
    if not isinstance(candidate.transition, BackgroundDeclaration):
        raise TypeError(f"{candidate.dotted} names the background performer and is no background declaration.")
    return candidate.transition


def look_again(call: Call, state: Any) -> None:
    """
    Lock the row and see that nothing has changed since it was judged under the cache lock alone.
    """
    found = locks.read(call, "row", whole=False)
    raise_if_blocked(call)
    if found != state:
        raise MoveLost


def message_of(call: Call, candidate: Candidate, transition: BackgroundDeclaration) -> dict[str, Any]:
    """
    Return the values of the row that stands for a call.
    """
    due, column, model = due_of(call), call.column, type(call.instance)
    return message_values(
        kind=str(Kind.TRANSITION),
        app_label=column.app_label,
        model_name=column.model_name,
        instance_id=instance_key(column, call.instance),
        process_name=column.process_name,
        field_name=column.field.name,
        transition_name=transition.action_name,
        model_class=model._meta.label,
        process_class=dotted(call.tree.root),
        owning_process_class=dotted(candidate.owner),
        kwargs=codec.encode(call.keywords, call.label) if call.keywords else {},
        user_id=stored_user(call),
        actor_id=call.actor_id,
        actor_label=call.actor_label,
        reason=call.reason,
        transition_id=call.transition_id,
        root_id=call.root_id,
        parent_id=call.parent_id,
        traceparent=tracing.current(),
        queue_name=transition.queue_name,
        priority=transition.priority,
        timeout_seconds=transition.timeout,
        max_errors=transition.max_errors,
        chain=chain_length.get(),
        run_at=due,
    )


def due_of(call: Call) -> Any:
    """
    Return when the row is due: ``run_at=`` by a clock, ``delay=`` from now by the database's, or at once.

    Raises: TypeError for values of another kind or both, ValueError for a time without a zone or a past delay.
    """
    run_at, delay = call.schedule.get("run_at"), call.schedule.get("delay")
    if run_at is None:
        return FromNow(delay_of(call))
    if delay is not None:
        raise TypeError(f"{call.label}: run_at= and delay= both say when. Pass one of them.")
    if not isinstance(run_at, datetime):
        raise TypeError(f"{call.label}: run_at= takes a datetime; found {run_at!r}. For seconds from now use delay=.")
    if timezone.is_naive(run_at) and settings.USE_TZ:
        raise ValueError(f"{call.label}: run_at={run_at!r} has no time zone. Use timezone.make_aware().")
    if not settings.USE_TZ and timezone.is_aware(run_at):
        run_at = timezone.make_naive(run_at)
    if run_at >= never():
        raise ValueError(f"{call.label}: run_at={run_at!r} lies beyond {NEVER:%Y}, when nobody will run it.")
    return run_at


def delay_of(call: Call) -> float:
    """
    Return the delay in seconds; for ``run_at=`` how far that is from now by this machine's clock.
    """
    run_at, delay = call.schedule.get("run_at"), call.schedule.get("delay")
    if isinstance(run_at, datetime):
        now = timezone.now() if timezone.is_aware(run_at) == settings.USE_TZ else datetime.now(UTC)
        return max(0.0, (run_at - now).total_seconds())
    if delay is None:
        return 0.0
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{call.label}: delay= takes seconds or a timedelta; found {delay!r}.")
    if not 0 <= seconds <= numbers.LONGEST_WAIT:
        raise ValueError(f"{call.label}: delay= must lie between 0 seconds and a hundred years; found {delay!r}.")
    return float(seconds)


def run_inline(call: Call) -> None:
    """
    Run the attempt of a call that was accepted, and bring the instance up to date.
    """
    key = instance_key(call.column, call.instance)
    rows = TransitionMessage.objects.using(call.alias).open().transitions().about(call.column, key)
    pk = rows.filter(transition_id=call.transition_id).values_list("pk", flat=True).first()
    error = failure_of(None if pk is None else run_row(call.alias, pk, call.transition_id))
    with suppress(ObjectDoesNotExist):  # a hook may have deleted it
        remember_state(call.column, call.instance, locks.read(call, "none", whole=False))
    if error is not None:
        raise error
