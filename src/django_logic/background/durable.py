"""
What follows a transition, as rows of its own: callbacks, failure callbacks and the next transition.

They are written in the commit that ends the transition, so that no crash loses them; each is retried by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from django_logic import hooks
from django_logic.background import codec
from django_logic.background.exceptions import AttemptFailed, KwargsSerializationError, Snooze, words_of
from django_logic.background.models import Kind, TransitionMessage
from django_logic.background.restore import CONTEXT, EXCEPTION, Restored, Unknown, find_class
from django_logic.background.settle import told
from django_logic.call import Call
from django_logic.clock import FromNow
from django_logic.engine import perform
from django_logic.exceptions import TransitionNotAllowed, TransitionTemporarilyUnavailable
from django_logic.follow import LONGEST_CHAIN, chain_length, follow_up
from django_logic.rows import Row
from django_logic.subject import state_of
from django_logic.transitions import Hook
from django_logic.tree import Candidate

#: How long a next transition waits while its object is busy; seconds.
BUSY_PAUSE = 10.0
#: Whether a row that follows a transition is being delivered: what it starts waits for that to be committed.
is_delivering: ContextVar[bool] = ContextVar("django_logic_is_delivering", default=False)

__all__ = ["deliver", "is_delivering", "message_values", "rows_after_failure", "rows_after_success"]


def message_values(**known: Any) -> dict[str, Any]:
    """
    Return the values of a new row: those that are given, and its times.
    """
    return {"created": FromNow(), "modified": FromNow(), "run_at": FromNow(), **known}


def rows_after_success(message: TransitionMessage, call: Call, candidate: Candidate) -> tuple[Row, ...]:
    """
    Return the rows of callbacks and of the next transition, in their order; none where the process wants none.
    """
    if not call.tree.root.durable_callbacks:
        return ()
    transition = candidate.transition
    shared = stored_context(call) if transition.callbacks else {}
    rows = [row_for(message, Kind.CALLBACK, name, shared) for name, _hook in numbered(transition.callbacks)]
    if transition.next_transition is not None:
        rows.append(row_for(message, Kind.NEXT, transition.next_transition, {}, chain=message.chain + 1))
    return tuple(rows)


def rows_after_failure(
    message: TransitionMessage, call: Call, candidate: Candidate, error: BaseException
) -> tuple[Row, ...]:
    """
    Return the rows of failure callbacks, each with what failed.
    """
    listed = candidate.transition.failure_callbacks
    if not listed or not call.tree.root.durable_callbacks:
        return ()
    shared = {**stored_context(call), EXCEPTION: stored_error(error)}
    return tuple(row_for(message, Kind.FAILURE_CALLBACK, name, shared) for name, _hook in numbered(listed))


def row_for(message: TransitionMessage, kind: Kind, name: str, shared: Mapping[str, Any], *, chain: int = 0) -> Row:
    """
    Make one row that follows another: the same object, people, ids and queue.
    """
    kept = (
        *("app_label", "model_name", "instance_id", "process_name", "field_name", "transition_name", "model_class"),
        *("process_class", "owning_process_class", "user_id", "actor_id", "actor_label", "reason", "transition_id"),
        *("root_id", "parent_id", "traceparent", "queue_name", "priority", "timeout_seconds", "max_errors"),
    )
    values = {name: getattr(message, name) for name in kept}
    kwargs = {key: value for key, value in message.kwargs.items() if key not in (CONTEXT, EXCEPTION)}
    values = message_values(**values, kind=str(kind), hook_name=name, kwargs={**kwargs, **shared}, chain=chain)
    return Row(model=TransitionMessage, values=values)


def numbered(listed: tuple[Hook, ...]) -> Iterator[tuple[str, Hook]]:
    """
    Yield hooks with names that stay the same while others come and go; the second of a name is ``name#2``.
    """
    seen: dict[str, int] = {}
    for hook in listed:
        name = hooks.name_of(hook)[:240]
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name}#{seen[name]}"), hook


def stored_context(call: Call) -> dict[str, Any]:
    """
    Return what hooks shared, as far as it can be stored; the rest is named in the log.
    """
    kept: dict[str, Any] = {}
    for name, value in call.context.items():
        try:
            codec.encode({CONTEXT: {**kept, name: value}}, call.label)
        except (KwargsSerializationError, TypeError) as error:
            hooks.logger.warning("%s: context[%r] does not reach the callbacks: %s", call.label, name, error)
        else:
            kept[name] = value
    return codec.encode({CONTEXT: kept}, call.label) if kept else {}


def stored_error(error: BaseException) -> dict[str, Any]:
    """
    Return what a row keeps of an exception: its class, its arguments if they can be stored, its words.
    """
    kind = type(error)
    kept: dict[str, Any] = {"class": f"{kind.__module__}.{kind.__qualname__}", "text": words_of(error)}
    try:
        encoded = codec.encode({EXCEPTION: {**kept, "args": list(error.args)}}, kind.__name__)
    except (KwargsSerializationError, TypeError):
        encoded = codec.encode({EXCEPTION: {name: told(text) for name, text in kept.items()}}, kind.__name__)
    stored: dict[str, Any] = encoded[EXCEPTION]
    return stored


def restored_error(kept: Any) -> BaseException:
    """
    Rebuild an exception as it was; where that can't be, a stand-in with its words.
    """
    text = str(kept.get("text", "")) if isinstance(kept, Mapping) else str(kept)
    try:
        kind = find_class(kept["class"])
        error = kind(*kept["args"]) if issubclass(kind, BaseException) else None
    except Exception:  # whatever a foreign class does with its arguments
        return AttemptFailed(text)
    return error if isinstance(error, BaseException) else AttemptFailed(text)


def deliver(message: TransitionMessage, restored: Restored) -> str | None:
    """
    Do what a row asks for that follows a transition; return a note where that turned out to be impossible.

    Transaction: the caller's, which ends the row too. Raises: Unknown for a hook this code does not have, and
    whatever the hook raises.
    """
    call, candidate = restored.call, restored.candidate
    if message.kind == Kind.NEXT:
        return go_on(call, message.hook_name, message.chain)
    is_failure = message.kind == Kind.FAILURE_CALLBACK
    transition = candidate.transition
    listed = dict(numbered(transition.failure_callbacks if is_failure else transition.callbacks))
    if message.hook_name not in listed:
        raise Unknown(f"{candidate.dotted} has no {message.get_kind_display()} {message.hook_name!r} here")
    exception = restored_error(restored.failure) if is_failure else None
    token = is_delivering.set(True)
    try:
        hooks.run_callback(call, listed[message.hook_name], exception=exception)
    finally:
        is_delivering.reset(token)
    return None


def go_on(call: Call, action: str, chain: int) -> str | None:
    """
    Run the next transition; one that is refused is noted, since the object went another way.

    Raises: Snooze while the object is busy, which is no failure, and what failed where nothing was written.
    """
    if chain > LONGEST_CHAIN:
        hooks.logger.error("%s: %d next transitions in a row, %s did not run", call.label, chain - 1, action)
        return f"{chain - 1} next transitions in a row, {action} did not run"
    before = state_of(call.column, call.instance)
    length = chain_length.set(chain)
    token = is_delivering.set(True)
    try:
        follow_up(call, action, perform)
    except TransitionTemporarilyUnavailable as busy:
        raise Snooze(BUSY_PAUSE, str(busy)) from busy
    except TransitionNotAllowed as refusal:
        hooks.logger.info("%s: next transition %s did not run: %s", call.label, action, refusal)
        return str(refusal)
    except Exception:
        if state_of(call.column, call.instance) == before:
            raise
        hooks.logger.exception("%s: next transition %s failed", call.label, action)
        return f"{action} failed and left the object in its failed state"
    finally:
        is_delivering.reset(token)
        chain_length.reset(length)
    return None
