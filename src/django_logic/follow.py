"""
What follows a call that ended well: callbacks, then the next transition.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from django.db import transaction

from django_logic import hooks
from django_logic.call import Call, make_call, running_within
from django_logic.exceptions import TransitionNotAllowed
from django_logic.run import Run
from django_logic.tree import Candidate

__all__ = ["LONGEST_CHAIN", "chain_length", "follow", "follow_after_commit", "follow_up", "has_follow_up"]

#: How many next transitions may follow each other: declarations that lead round in a circle have to end somewhere.
LONGEST_CHAIN = 50
chain_length: ContextVar[int] = ContextVar("django_logic_chain_length", default=0)
#: Keywords that speak of one call only, and not of what follows it.
OF_ONE_CALL = ("run_at", "delay")

#: What runs a call: the engine hands itself in, since it is above this room.
Perform = Callable[[Call], bool]


def has_follow_up(candidate: Candidate) -> bool:
    """
    Tell whether a declaration has something to do after the commit.
    """
    transition = candidate.transition
    return transition.performer is None and bool(transition.callbacks or transition.next_transition)


def follow_after_commit(run: Run, perform: Perform) -> None:
    """
    Schedule callbacks and the next transition for after the outermost commit.
    """
    candidate = run.chosen
    if candidate is not None and has_follow_up(candidate):
        transaction.on_commit(lambda: follow(run.call, candidate, perform), using=run.call.alias, robust=True)


def follow(call: Call, candidate: Candidate, perform: Perform) -> None:
    """
    Run the callbacks and the next transition of a declaration; nothing they raise reaches the caller.
    """
    hooks.run_callbacks(call, candidate.transition.callbacks)
    if candidate.transition.next_transition is not None:
        go_on(call, candidate.transition.next_transition, perform)


def go_on(call: Call, action: str, perform: Perform) -> None:
    """
    Run the next transition; one that is not possible now is skipped with a log line.
    """

    def go() -> None:
        try:
            follow_up(call, action, perform)
        except TransitionNotAllowed as refusal:
            level = "error" if refusal.reason == "ambiguous" else "info"
            getattr(hooks.logger, level)("%s: next transition %s did not run: %s", call.label, action, refusal)

    length = chain_length.get()
    if length >= LONGEST_CHAIN:
        hooks.logger.error("%s: %d next transitions in a row, %s did not run", call.label, length, action)
        return
    token = chain_length.set(length + 1)
    try:
        hooks.run_apart(call, f"next transition {action}", go)
    finally:
        chain_length.reset(token)


def follow_up(call: Call, action: str, perform: Perform) -> None:
    """
    Run another action of the object with the keywords of a call, as its child.

    Raises: what the action raises.
    """
    kept = {name: value for name, value in call.keywords.items() if name not in OF_ONE_CALL}
    keywords = {**kept, "user": call.user, "actor": call.actor, "reason": call.reason}
    with running_within(call):
        perform(make_call(column=call.column, tree=call.tree, instance=call.instance, keywords=keywords, action=action))
