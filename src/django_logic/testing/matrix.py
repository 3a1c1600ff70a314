"""
Every pair of states tried: declared moves work, all others are refused, by the process and by the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.db import DatabaseError, models, transaction

from django_logic import Process, ProcessManager
from django_logic.exceptions import RefusalReason
from django_logic.machines import machine_of
from django_logic.testing.placing import place, put
from django_logic.verify import sharers_of

__all__ = ["assert_matrix"]

#: What no person, data or time can be the reason of.
BROKEN = (RefusalReason.SOURCE_STATE, RefusalReason.AMBIGUOUS)


def assert_matrix(
    process_class: type[Process],
    model: type[models.Model],
    *,
    create: Callable[[], Any] | None = None,
    database: bool = True,
    using: str = "default",
) -> None:
    """
    Try every move between two states of a process, and tell all that are not as declared.

    For each source state an object is put there. The process must refuse every action that does not start in it, and
    no other one for its state or because two declarations fit; guards are asked, hooks are not run. The database must
    take exactly the moves that some process of this column declares, and refuse every other one: that needs a
    `TransitionConstraint`, or ``database=False``. ``create`` makes an object that may be in any state, where the model
    has columns without a default.
    Raises: AssertionError when the model is not bound to the process, and with every difference.
    """
    instance = create() if create is not None else model._default_manager.using(using).create()
    process: Process = getattr(instance, binding_of(process_class, model).process_class.process_name)
    column = process.column
    sharers = sharers_of(machine_of(column.owner, column.process_name))
    edges = frozenset().union(*(entry.edges for entry in sharers))
    found: list[str] = []
    for source in sorted(process.tree.states, key=str):
        place(instance, process.process_name, source)
        found += judged(process, source)
        if database:
            found += tried(instance, column, source, process.tree.states, edges, using)
    if found:
        raise AssertionError(f"{process_class.__name__} on {model._meta.label}:\n  " + "\n  ".join(found))


def binding_of(process_class: type[Process], model: type[models.Model]) -> Any:
    """
    Return how a model is bound to a process.
    """
    bound = [entry for entry in ProcessManager.bindings_of(model) if entry.process_class is process_class]
    if not bound:
        raise AssertionError(
            f"{model._meta.label} is not bound to {process_class.__name__}. Bind it, or name another one."
        )
    return bound[0]


def judged(process: Process, source: Any) -> Iterator[str]:
    """
    Compare what the process says of each action in a state with its declarations.
    """
    for action, candidates in process.tree.by_action.items():
        is_declared = any(source in candidate.sources for candidate in candidates)
        is_there = any(candidate.transition.target == source for candidate in candidates)  # a duplicate is no refusal
        reasons = process.why_not(action)
        if is_declared and any(reason.code in BROKEN for reason in reasons):
            yield f"{source!r}: {action} is declared and refused: {'; '.join(reason.message for reason in reasons)}"
        if not (is_declared or is_there or reasons):
            yield f"{source!r}: {action} is not declared and would run"


def tried(
    instance: models.Model, column: Any, source: Any, states: frozenset[Any], edges: frozenset[Any], using: str
) -> Iterator[str]:
    """
    Compare what the database takes from a state with the declared moves; everything is rolled back.
    """
    for target in sorted(states - {source}, key=str):
        refusal = refused(instance, column.name, target, using)
        if refusal is None and (source, target) not in edges:
            told = "no process declares it, and the database takes it. Add a TransitionConstraint."
            yield f"{source!r} -> {target!r}: {told}"
        elif refusal is not None and (source, target) in edges:
            yield f"{source!r} -> {target!r}: declared, and the database refuses it: {refusal}"


def refused(instance: models.Model, field: str, target: Any, using: str) -> DatabaseError | None:
    """
    Try a move in the database alone, and take it back; return what refused it.
    """
    try:
        with transaction.atomic(using=using):
            put(instance, field, target)
            transaction.set_rollback(True, using=using)
    except DatabaseError as error:
        return error
    return None
