"""
Running hooks: side effects, which may fail a call, and callbacks, which may not.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any

from django.db import connections, transaction

from django_logic.call import Call, hook_keywords, running_within
from django_logic.exceptions import TransitionTemporarilyUnavailable
from django_logic.transitions import Hook

__all__ = [
    "accepts_instance",
    "accepts_user",
    "ask",
    "logger",
    "name_of",
    "refuse_unrun",
    "run_apart",
    "run_callback",
    "run_callbacks",
    "run_quietly",
    "run_side_effects",
]

logger = logging.getLogger("django-logic.transition")


def name_of(hook: Hook) -> str:
    """
    Return what messages and refusal maps call a hook.
    """
    named = inspect.unwrap(hook)
    return (
        getattr(named, "__name__", None)
        or getattr(getattr(named, "func", None), "__name__", None)
        or type(hook).__name__
    )


@lru_cache(maxsize=4096)
def accepted_keywords(hook: Hook) -> frozenset[str] | None:
    """
    Return the keywords a hook names, None when it takes all or can't be inspected.
    """
    try:
        parameters = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return frozenset(parameter.name for parameter in parameters if parameter.kind in by_name)


def accepts_user(hook: Hook) -> bool:
    """
    Tell whether a permission has a second parameter, named or ``*args``, for the user; True where it can't be told.
    """
    try:
        parameters = list(inspect.signature(hook).parameters.values())
    except (TypeError, ValueError):
        return True
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return len(parameters) > 1 and parameters[1].kind in kinds


def accepts_instance(hook: Hook) -> bool:
    """
    Tell whether a hook's first parameter is a named one that takes the instance; True where it can't be told.
    """
    try:
        parameters = list(inspect.signature(hook).parameters.values())
    except (TypeError, ValueError):
        return True
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return bool(parameters) and parameters[0].kind in kinds


def ask(hook: Hook, *arguments: Any, keywords: Mapping[str, Any]) -> Any:
    """
    Call a hook with the keywords it takes: all of them, or those it names.
    """
    try:
        accepted = accepted_keywords(hook)
    except TypeError:  # an unhashable callable is called with everything
        accepted = None
    if accepted is not None:
        keywords = {name: value for name, value in keywords.items() if name in accepted}
    answer = hook(*arguments, **keywords)
    if answer is not None and not isinstance(answer, bool):
        refuse_unrun(hook, answer)
    return answer


def refuse_unrun(hook: Hook, answer: Any) -> None:
    """
    Refuse an answer that is work nobody did: as a guard's it would count as a yes.
    """
    if inspect.isawaitable(answer) or inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(
            f"The hook {name_of(hook)} answered with a {type(answer).__name__} that nobody runs."
            " Make it do its work before it returns, for async code by async_to_sync."
        )


def run_side_effects(call: Call, effects: Iterable[Hook]) -> None:
    """
    Run hooks in order; the first one that raises ends it.

    Transaction: runs within whatever the caller opened.
    """
    with running_within(call):
        keywords = hook_keywords(call)
        for effect in effects:
            ask(effect, call.instance, keywords=keywords)


def run_callback(call: Call, callback: Hook, *, exception: BaseException | None = None) -> None:
    """
    Run one hook that may fail: what it raises is its caller's.
    """
    keywords = hook_keywords(call)
    if exception is not None:
        keywords["exception"] = exception
    with running_within(call):
        ask(callback, call.instance, keywords=keywords)


def run_callbacks(call: Call, callbacks: Iterable[Hook], *, exception: BaseException | None = None) -> None:
    """
    Run hooks that can't fail the call: what they raise is logged, and the next one runs.

    Transaction: inside an open one each hook gets a savepoint, so that its database error spoils nothing else.
    """
    keywords = hook_keywords(call)
    if exception is not None:
        keywords["exception"] = exception
    with running_within(call):
        for callback in callbacks:
            run_apart(call, name_of(callback), partial(ask, callback, call.instance, keywords=keywords))


def run_apart(call: Call, name: str, work: Callable[[], Any]) -> None:
    """
    Run one piece of best-effort work, in a savepoint where a transaction is open.
    """

    def within_savepoint() -> None:
        with savepoint(call.alias):
            work()

    run_quietly(call, name, within_savepoint)


def run_quietly(call: Call, name: str, work: Callable[[], Any]) -> None:
    """
    Run work that can't fail the call: the one place where an exception is swallowed on purpose.
    """
    try:
        work()
    except TransitionTemporarilyUnavailable as busy:
        logger.warning("%s of %s: %s found it busy: %s", call.label, call.subject, name, busy, extra=ids(call))
    except Exception:
        logger.exception("%s of %s: %s failed", call.label, call.subject, name, extra=ids(call))


def savepoint(alias: str) -> AbstractContextManager[Any]:
    """
    Return a savepoint when a transaction is open, nothing otherwise.
    """
    connection = connections[alias]
    if connection.in_atomic_block and not connection.needs_rollback:
        return transaction.atomic(using=alias)
    return nullcontext()


def ids(call: Call) -> dict[str, str]:
    """
    Return the ids of a call for a log record; never its keywords, which may hold personal data.
    """
    return {"transition_id": str(call.transition_id), "root_id": str(call.root_id)}
