"""
Watching the real hooks of a process tree while they run, and making one of them fail.

Hooks are wrapped where the declarations list them, and put back whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django_logic import Transition
from django_logic.hooks import name_of
from django_logic.testing.journey import EFFECT_SLOTS, HookRun

__all__ = ["SLOTS", "Injection", "hook_names", "tracked"]

#: The lists of a declaration that hold work, as against guards.
SLOTS = (*EFFECT_SLOTS, "callbacks", "failure_callbacks")


@dataclass(slots=True)
class Injection:
    """
    Make a side effect raise instead of running; ``raised`` is what it raised in the end.
    """

    name: str
    error: BaseException | type[BaseException] | Callable[[], BaseException] | None = None
    raised: BaseException | None = None
    misuse: TypeError | None = None

    def fire(self) -> BaseException:
        """
        Return the exception to raise; a TypeError, kept in ``misuse``, where ``error`` makes none.
        """
        made: Any = self.error if self.error is not None else Exception(f"injected failure of {self.name}")
        if not isinstance(made, BaseException):
            made = made()
        if not isinstance(made, BaseException):
            made = self.misuse = TypeError(f"fail_with takes an exception, or what makes one; found {self.error!r}.")
        failure: BaseException = made
        self.raised = failure
        return failure


def transitions_of(process: Any) -> list[Transition]:
    """
    Return the declarations of a process and everything nested in it, each once.
    """
    return list({id(entry.transition): entry.transition for entry in process.tree.candidates}.values())


def hook_names(process: Any, *slots: str) -> set[str]:
    """
    Return the names of all hooks in these slots of the tree.
    """
    return {
        name_of(hook) for transition in transitions_of(process) for slot in slots for hook in getattr(transition, slot)
    }


@contextmanager
def tracked(process: Any, log: list[HookRun], injection: Injection | None = None) -> Iterator[None]:
    """
    Note every hook of the tree that runs within the block.

    Raises: ValueError when the hook to fail is a side effect of no declaration in the tree.
    """
    if injection is not None:
        known = hook_names(process, *EFFECT_SLOTS)
        if injection.name not in known:
            raise ValueError(
                f"{injection.name!r} is no side effect of {type(process).__name__}; it has {sorted(known)}."
            )
    before: list[tuple[Transition, str, Any]] = []
    try:
        for transition in transitions_of(process):
            for slot in SLOTS:
                hooks = getattr(transition, slot)
                before.append((transition, slot, hooks))
                # Declarations are frozen for everybody else.
                object.__setattr__(transition, slot, tuple(watched(hook, slot, log, injection) for hook in hooks))
        yield
    finally:
        for transition, slot, hooks in before:
            object.__setattr__(transition, slot, hooks)


def watched(hook: Any, slot: str, log: list[HookRun], injection: Injection | None) -> Any:
    """
    Wrap a hook so that it is noted once it has returned or raised.
    """
    name = name_of(hook)
    is_failing = injection is not None and slot in EFFECT_SLOTS and name == injection.name

    @wraps(hook)
    def watch(*arguments: Any, **keywords: Any) -> Any:
        try:
            if is_failing and injection is not None:
                raise injection.fire()
            answer = hook(*arguments, **keywords)
        except BaseException as error:
            log.append(HookRun(slot, name, error))
            raise
        log.append(HookRun(slot, name))
        return answer

    return watch
