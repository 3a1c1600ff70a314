"""
A process: the transitions of one state field, and the accessor through which an object is moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from asgiref.sync import sync_to_async
from django.db import models
from django.utils.module_loading import import_string

from django_logic import engine, judge, rules, timeline
from django_logic.call import Call, make_call
from django_logic.exceptions import Refusal, Text, TransitionNotAllowed
from django_logic.records import history_of, newest_sequence
from django_logic.run import lock_of, raise_if_blocked
from django_logic.subject import Column, alias_of, column_of, instance_key, state_of
from django_logic.transitions import Hook, Transition
from django_logic.tree import Tree, tree_of

__all__ = ["BoundAction", "Process", "call_of"]


#: What cancels background work; named, since the core does without the app.
CANCEL = "django_logic.background.cancel.cancel"


class BoundAction:
    """
    Run one action of one object when called.

    Templates never call it: it is marked as altering data.
    """

    alters_data = True

    def __init__(self, process: Process, name: str) -> None:
        self._process = process
        self.name = name

    def __call__(self, *arguments: Any, **keywords: Any) -> bool:
        if arguments:
            raise TypeError(
                f"{type(self._process).__name__}.{self.name}() takes keywords only; found {len(arguments)} positional"
                " argument(s). Write user=, reason= and so on, since a dropped user would skip every permission."
            )
        return engine.perform(call_of(self._process, action=self.name, keywords=keywords))

    def __repr__(self) -> str:
        return f"<{type(self._process).__name__}.{self.name} of {self._process.instance._meta.label}>"


class Process:
    """
    Declare the states of one field: subclass it, list transitions, bind it to a model.

    On an object ``order.process.approve(user=u)`` runs an action, `transition_to` a move by target.
    Source: docs/reference/process.md

    Example::

        class OrderProcess(Process):
            transitions = [Transition("approve", sources=["draft"], target="approved")]
    """

    process_name: ClassVar[str] = "process"
    transitions: ClassVar[Iterable[Transition]] = ()
    nested_processes: ClassVar[Iterable[type[Process]]] = ()
    conditions: ClassVar[Iterable[Hook]] = ()
    permissions: ClassVar[Iterable[Hook]] = ()
    #: How calls hold the row: row, nowait or cache; None takes the project's ``LOCK``.
    lock: ClassVar[str | None] = None
    #: What a call for the state the object is in already gets: "quiet" (False) or "refuse".
    duplicates: ClassVar[str] = "quiet"
    refusal_messages: ClassVar[Mapping[str, Text]] = {}
    #: Whether creating an object writes a first history row, from nothing to its birth state.
    record_initial_state: ClassVar[bool] = False
    #: Whether the instance is refreshed from the read under the lock; False refreshes the state alone.
    refresh: ClassVar[bool] = True
    #: Whether callbacks of background transitions are rows that survive a crash.
    durable_callbacks: ClassVar[bool] = True

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        rules.check_process(cls)

    def __init__(self, instance: models.Model, field_name: str = "state") -> None:
        self.instance = instance
        self.field_name = field_name

    def __getattr__(self, name: str) -> BoundAction:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name in tree_of(type(self)).by_action:
            return BoundAction(self, name)
        call = call_of(self, action=name, keywords={})
        raise judge.refuse(call, state_of(self.column, self.instance), judge.examine(call, None).reasons)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.tree.by_action})

    @property
    def tree(self) -> Tree:
        """
        Return what the class declares, everything nested included.
        """
        return tree_of(type(self))

    @property
    def column(self) -> Column:
        """
        Return the column this process moves.
        """
        return column_of(type(self.instance), self.field_name, type(self).process_name)

    @property
    def state(self) -> Any:
        """
        Return the state the instance holds in memory.
        """
        return state_of(self.column, self.instance)

    def transition_to(self, target: Any, **keywords: Any) -> bool:
        """
        Move the object to a state by whichever declared edge leads there.

        Shape: True when it moved, False when it was there already. Raises: TransitionNotAllowed.
        """
        return engine.perform(call_of(self, target=target, keywords=keywords))

    async def atransition(self, action: str, **keywords: Any) -> bool:
        """
        Run an action from async code.
        """
        moved: bool = await sync_to_async(lambda: Process.__getattr__(self, action)(**keywords))()
        return moved

    async def atransition_to(self, target: Any, **keywords: Any) -> bool:
        """
        Move the object to a state from async code.
        """
        return await sync_to_async(self.transition_to)(target, **keywords)

    def why_not(
        self, action: str | None = None, *, target: Any = None, user: Any = None, **keywords: Any
    ) -> list[Refusal]:
        """
        List every reason why an action, or a move to ``target``, would be refused now; empty when it may run.

        A duplicate is no refusal unless the process refuses duplicates. Judges the state in memory.
        Raises: TypeError unless exactly one of action and target is given.
        """
        if (action is None) == (target is None):
            raise TypeError("why_not() takes either an action or target=; found both or neither.")
        call = call_of(self, action=action, target=target, keywords={"user": user, **keywords})
        blocking = blocked_by(call)
        return blocking or list(judge.examine(call, self.state, lambda: self.version).reasons)

    def get_available_transitions(self, user: Any = None, action_name: str | None = None) -> list[Transition]:
        """
        List the declarations that could run now for this user, sorted by action name.

        Judges the state in memory. While background work is open only actions that take no lock are left.
        """
        call = call_of(self, action="", keywords={"user": user})
        found = [candidate.transition for candidate in judge.available(call, self.state)]
        if blocked_by(call):
            found = [transition for transition in found if transition.lock == "none"]
        return [transition for transition in found if action_name in (None, transition.action_name)]

    def get_available_actions(self, user: Any = None, action_name: str | None = None) -> list[str]:
        """
        List the names of the actions that could run now for this user.
        """
        return [transition.action_name for transition in self.get_available_transitions(user, action_name)]

    def cancel_background(self, *, user: Any = None, actor: Any = None, reason: str = "") -> bool:
        """
        Cancel the object's open background transition, which then takes its failure path.

        Shape: True when it ended now, False when an attempt runs: it stops before it commits, or has won.
        Raises: TransitionNotAllowed when none is open.
        """
        if not self.tree.has_background:
            raise TransitionNotAllowed(f"{type(self).__name__} declares no background work, so none can be cancelled.")
        return bool(import_string(CANCEL)(self, user=user, actor=actor, reason=reason))

    @property
    def history(self) -> Any:
        """
        Return the object's moves in this process as a queryset, newest last.
        """
        return history_of(self.column, instance_key(self.column, self.instance), alias_of(self.instance)).order_by(
            "sequence"
        )

    @property
    def version(self) -> int:
        """
        Return how many moves the object has made, for ``expected_version=``; 0 before any.
        """
        return newest_sequence(self.column, instance_key(self.column, self.instance), alias_of(self.instance))

    def timeline(self) -> list[timeline.Entry]:
        """
        Return all that is recorded of the object, moves and audit entries, oldest first, each event once.
        """
        return timeline.of(self.column, instance_key(self.column, self.instance), alias_of(self.instance))


for method in (
    Process.transition_to,
    Process.atransition,
    Process.atransition_to,
    Process.cancel_background,
):
    vars(method)["alters_data"] = True


def call_of(process: Process, *, action: str | None = None, target: Any = None, keywords: dict[str, Any]) -> Call:
    """
    Make the Call that the engine performs and the judge examines; runs nothing.
    """
    return make_call(
        column=process.column,
        tree=process.tree,
        instance=process.instance,
        keywords=keywords,
        action=action,
        target=target,
    )


def blocked_by(call: Call) -> list[Refusal]:
    """
    List what keeps the object busy for a call.
    """
    try:
        if lock_of(call) != "none":
            raise_if_blocked(call)
    except TransitionNotAllowed as busy:
        return list(busy.reasons)
    return []
