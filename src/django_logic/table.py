"""
The second front door: a transition table on the model, compiled into a process with one transition for each edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models.signals import class_prepared

from django_logic.binding import ProcessAccessor, ProcessManager
from django_logic.process import Process
from django_logic.states import nearest, plain, plain_table
from django_logic.transitions import Transition

__all__ = ["TransitionsMixin", "compile_table"]


class TransitionsMixin:
    """
    Give a model ``transition_to``, ``can_transition_to``, ``history`` and ``process`` from a table of its edges.

    ``TRANSITIONS`` maps each source to the set of its targets; ``state_field`` names the column. Binds itself.

    Example::

        class Order(TransitionsMixin, models.Model):
            state_field = "status"
            TRANSITIONS = {"draft": {"placed"}, "placed": set()}
            status = models.CharField(max_length=12, default="draft")
    """

    state_field: ClassVar[str] = "status"
    TRANSITIONS: ClassVar[Any]
    #: Whether creating an object writes a first history row.
    record_initial_state: ClassVar[bool] = False
    process: Any

    def transition_to(self, target: Any, *, actor: Any = None, reason: str = "", **keywords: Any) -> bool:
        """
        Move the object to a state: the only way its status changes.

        Shape: True when it moved, False when it was there already. Raises: InvalidTransition and its kin.
        """
        moved: bool = self.process.transition_to(target, actor=actor, reason=reason, **keywords)
        return moved

    async def atransition_to(self, target: Any, *, actor: Any = None, reason: str = "", **keywords: Any) -> bool:
        """
        Move the object to a state from async code.
        """
        moved: bool = await self.process.atransition_to(target, actor=actor, reason=reason, **keywords)
        return moved

    def can_transition_to(self, target: Any) -> bool:
        """
        Tell whether the state in memory has an edge to the target; permissions are not asked.
        """
        process: Process = self.process
        if not isinstance(plain(target), (str, int)):
            return False
        here = [
            candidate
            for candidate in process.tree.by_target.get(plain(target), ())
            if process.state in candidate.sources
        ]
        return bool(here) and not process.why_not(target=target)

    @property
    def history(self) -> Any:
        """
        Return the object's moves, newest last.
        """
        return self.process.history


for method in (TransitionsMixin.transition_to, TransitionsMixin.atransition_to):
    vars(method)["alters_data"] = True


def compile_table(name: str, module: str, table: Any, *, record_initial_state: bool = False) -> type[Process]:
    """
    Make the process a table stands for; its actions are called ``to_<target>``.

    Raises: ImproperlyConfigured when the table is none.
    """
    try:
        rows = plain_table(table)
    except TypeError as error:
        raise ImproperlyConfigured(f"{module}.{name}.TRANSITIONS: {error}.") from None
    edges = [
        Transition(f"to_{target}", sources=[source], target=target)
        for source, targets in rows.items()
        for target in targets
    ]
    declared = {"__module__": module, "transitions": edges, "record_initial_state": record_initial_state}
    return type(f"{name}Process", (Process,), declared)


def bind_table(sender: type[models.Model], **_signal: Any) -> None:
    """
    Bind a model that brings a table, as its class is complete.

    Historical models of migrations carry the mixin but no table; a child or proxy shares its parent's binding.
    """
    if not issubclass(sender, TransitionsMixin) or sender._meta.abstract or sender.__module__ == "__fake__":
        return
    table = getattr(sender, "TRANSITIONS", None)
    if table is None:
        refuse_misspelled(sender)
        return
    inherited = getattr(sender, Process.process_name, None)
    if isinstance(inherited, ProcessAccessor) and "TRANSITIONS" not in vars(sender):
        return
    process_class = compile_table(
        sender.__name__, sender.__module__, table, record_initial_state=sender.record_initial_state
    )
    ProcessManager.bind_model_process(sender, process_class, sender.state_field)


def refuse_misspelled(model: type[models.Model]) -> None:
    """
    Refuse a model whose table has a slip in its name; one without any table may be bound to a process by hand.
    """
    for name, value in vars(model).items():
        if isinstance(value, Mapping) and nearest(name.upper(), ["TRANSITIONS"]):
            raise ImproperlyConfigured(
                f"{model.__module__}.{model.__name__}.{name}: nothing reads an attribute of that name."
                " Did you mean 'TRANSITIONS'?"
            )


class_prepared.connect(bind_table, dispatch_uid="django_logic.bind_table")
