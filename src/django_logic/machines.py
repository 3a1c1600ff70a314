"""
Machines: a state column with every process that moves it, found from what a person names.

A machine is what history knows: proxies and children that share a column and a process name share the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.apps import apps
from django.db import models

from django_logic.binding import ModelProcessBinding, ProcessManager
from django_logic.states import as_text, nearest, plain_all
from django_logic.subject import Column, column_of
from django_logic.tree import Candidate, tree_of

__all__ = ["Machine", "machine_of", "machines", "model_named"]


@dataclass(frozen=True)
class Machine:
    """
    Hold one column and the process classes bound to it under one name.
    """

    column: Column
    process_classes: tuple[type[Any], ...]

    @property
    def label(self) -> str:
        """
        Return the owning model the way Django writes it: ``shop.Order``.
        """
        return str(self.column.owner._meta.label)

    @property
    def name(self) -> str:
        """
        Name it for a person.
        """
        return f"{self.label}, {self.column.process_name}"

    @cached_property
    def states(self) -> dict[str | None, Any]:
        """
        Return every state the code knows as history writes it, with its value in the column.

        Shape: in the order of the field's choices, then of the declarations.
        """
        field = self.column.field
        known = [value for value, _label in field.flatchoices]
        known += [field.default] if field.has_default() and not callable(field.default) else []
        known += [state for entry in self.candidates for state in states_of(entry)]
        known += [None] if field.null else []
        return {as_text(state): state for state in plain_all(known)}

    @property
    def candidates(self) -> list[Candidate]:
        """
        Return everything that is declared.
        """
        return [entry for process_class in self.process_classes for entry in tree_of(process_class).candidates]

    @cached_property
    def edges(self) -> frozenset[tuple[Any, Any]]:
        """
        Return every move of the column that is declared; staying put is none.
        """
        return frozenset().union(*(entry.edges for entry in self.candidates))

    @property
    def final_states(self) -> frozenset[str | None]:
        """
        Return the states, as history writes them, that no declared move leaves.
        """
        return frozenset(self.states) - {as_text(start) for start, _end in self.edges}

    def unknown_state(self, state: Any) -> str:
        """
        Say that a state is none of the machine's.
        """
        text, known = as_text(state), [known for known in self.states if known is not None]
        return (
            f"{self.name}: the state {text!r} is neither declared nor recorded.{nearest(text, known)}"
            f" Its states: {', '.join(map(repr, known))}."
        )


def states_of(entry: Candidate) -> list[Any]:
    """
    Return the states one declaration names, in reading order.
    """
    transition = entry.transition
    named = [*transition.sources, *([] if transition.is_action else [transition.target])]
    optional = (transition.in_progress_state, transition.failed_state)
    return named + [state for state in optional if state is not None]


def machines(model: type[models.Model] | None = None) -> list[Machine]:
    """
    Return the machines of a model, of its parents, and of the proxies and children that move a column it has; or all.
    """
    found: dict[tuple[Any, ...], list[type[Any]]] = {}
    for binding in ProcessManager.bindings:
        column = column_of(binding.model, binding.state_field, binding.process_class.process_name)
        if model is None or concerns(model, binding, column):
            key = (column.owner, column.name, column.process_name)
            found.setdefault(key, []).append(binding.process_class)
    return [Machine(column_of(*key), tuple(dict.fromkeys(classes))) for key, classes in found.items()]


def concerns(model: type[models.Model], binding: ModelProcessBinding, column: Column) -> bool:
    """
    Tell whether a binding moves a column of this model's objects.
    """
    asked, bound = model._meta.concrete_model, binding.model._meta.concrete_model
    if asked is None or bound is None or not issubclass(asked, column.owner):
        return False
    return issubclass(asked, bound) or issubclass(bound, asked)


def machine_of(model: type[models.Model], process_name: str | None = None) -> Machine:
    """
    Return the one machine a person means.

    Raises: ValueError when the model has none, none of that name, or several and no name was given.
    """
    if not hasattr(model, "_meta") or not isinstance(model, type):
        raise ValueError(f"a model class is needed here; found {model!r}.")
    own = machines(model)
    names = sorted(machine.column.process_name for machine in own)
    named = [machine for machine in own if process_name in (None, machine.column.process_name)]
    if not own:
        raise ValueError(
            f"{model._meta.label} has no process, so it has no history. Name a bound model, or bind this one with"
            " ProcessManager.bind_model_process()."
        )
    if not named:
        raise ValueError(
            f"{model._meta.label} has no process {process_name!r}; found {', '.join(map(repr, names))}."
            f"{nearest(process_name, names)}"
        )
    if len(named) > 1:
        raise ValueError(f"{model._meta.label} has several processes: {', '.join(map(repr, names))}. Name one of them.")
    return named[0]


def model_named(label: str) -> type[models.Model]:
    """
    Return the model of a label such as ``shop.Order``, in any case.

    Raises: ValueError naming the nearest label.
    """
    labels = [model._meta.label for model in apps.get_models()]
    for model in apps.get_models():
        if model._meta.label_lower == label.lower():
            return model
    bound = [machine.label for machine in machines()]
    raise ValueError(
        f"no model is called {label!r}.{nearest(label, labels)} Models with a process: {', '.join(sorted(set(bound)))}."
    )
