"""
Binding processes to models: the registry, and the accessor each model gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.db import models

from django_logic import births, extension, judge, rules
from django_logic.process import Process, call_of
from django_logic.subject import instance_key, is_loaded, remember_state, state_of
from django_logic.tree import dotted

__all__ = ["ModelProcessBinding", "ProcessAccessor", "ProcessManager"]


class ModelProcessBinding(NamedTuple):
    """
    Name which process moves which field of which model.
    """

    model: type[models.Model]
    process_class: type[Process]
    state_field: str


class ProcessAccessor:
    """
    Give each instance of a bound model its process.
    """

    def __init__(self, process_class: type[Process], state_field: str) -> None:
        self.process_class = process_class
        self.state_field = state_field

    def __get__(self, instance: models.Model | None, owner: type[models.Model]) -> Any:
        if instance is None:
            return self
        return self.process_class(instance=instance, field_name=self.state_field)

    def __set__(self, instance: models.Model, value: Any) -> None:
        raise AttributeError(
            f"{type(instance).__name__}.{self.process_class.process_name} can't be set. Run one of its actions instead."
        )


class ProcessManager:
    """
    Bind processes to models, and ask about many objects at once.
    """

    bindings: ClassVar[list[ModelProcessBinding]] = []

    @classmethod
    def bind_model_process(
        cls, model: type[models.Model], process_class: type[Process], state_field: str = "state"
    ) -> None:
        """
        Give a model the accessor of a process; call it in ``AppConfig.ready()``. The same again changes nothing.

        Raises: ImproperlyConfigured for an unknown field, a name that is taken, or a declaration that can't work.
        """
        binding = ModelProcessBinding(model, process_class, state_field)
        if binding in cls.bindings:
            return
        rules.check_binding(model, process_class, state_field)
        refuse_taken_name(model, process_class)
        cls.bindings.append(binding)
        setattr(model, process_class.process_name, ProcessAccessor(process_class, state_field))
        if process_class.record_initial_state:
            births.watch(model, process_class, state_field)

    @classmethod
    def unbind_model_process(
        cls,
        model: type[models.Model],
        process_class: type[Process] | None = None,
        state_field: str | None = None,
    ) -> None:
        """
        Take back bindings of a model, all or those that match, with their accessors; unknown ones change nothing.
        """
        for binding in [entry for entry in cls.bindings if entry.model is model]:
            if process_class in (None, binding.process_class) and state_field in (None, binding.state_field):
                cls.bindings.remove(binding)
                births.forget(model, binding.process_class)
                if isinstance(vars(model).get(binding.process_class.process_name), ProcessAccessor):
                    delattr(model, binding.process_class.process_name)

    @classmethod
    def bindings_of(cls, model: type[models.Model]) -> list[ModelProcessBinding]:
        """
        Return the bindings a model has, its own and inherited ones.
        """
        return [entry for entry in cls.bindings if issubclass(model, entry.model)]

    @classmethod
    def available_actions(
        cls, queryset: models.QuerySet[Any], user: Any = None, process_name: str = "process"
    ) -> dict[Any, list[str]]:
        """
        Return what could run now on each object of a page, by primary key.

        Costs the queryset's own query and, where the process declares background work, one more; plus what guards ask.
        """
        instances = list(queryset)
        load_states(instances, queryset, process_name)
        processes: list[Process] = [getattr(instance, process_name) for instance in instances]
        if not processes:
            return {}
        busy: Sequence[str] | dict[str, Any] = ()
        if processes[0].tree.has_background:
            keys = [instance_key(process.column, process.instance) for process in processes]
            busy = extension.blocked(processes[0].column, queryset.db, keys)
        found: dict[Any, list[str]] = {}
        for process in processes:
            call = call_of(process, action="", keywords={"user": user})
            candidates = judge.available(call, state_of(process.column, process.instance))
            if instance_key(process.column, process.instance) in busy:
                candidates = [candidate for candidate in candidates if candidate.transition.lock == "none"]
            found[process.instance.pk] = [candidate.transition.action_name for candidate in candidates]
        return found


def load_states(instances: Sequence[Any], queryset: models.QuerySet[Any], process_name: str) -> None:
    """
    Read the states a page left unloaded in one query, instead of one for each object.
    """
    columns = {instance.pk: getattr(instance, process_name).column for instance in instances}
    unloaded = {instance.pk: instance for instance in instances if not is_loaded(columns[instance.pk], instance)}
    if not unloaded:
        return
    name = next(iter(columns.values())).field.attname
    rows: models.QuerySet[Any] = models.QuerySet(model=queryset.model, using=queryset.db)
    for pk, state in rows.filter(pk__in=unloaded).values_list("pk", name):
        remember_state(columns[pk], unloaded[pk], state)


def refuse_taken_name(model: type[models.Model], process_class: type[Process]) -> None:
    """
    Refuse an accessor that would hide something: another process of this model, a field, a method.
    """
    name = process_class.process_name
    holder = next((base for base in model.__mro__ if name in vars(base)), None)
    if holder is None or getattr(vars(holder)[name], "is_placeholder", False):
        return
    taken = vars(holder)[name]
    if isinstance(taken, ProcessAccessor) and holder is not model:
        return
    by = dotted(taken.process_class) if isinstance(taken, ProcessAccessor) else f"{holder.__name__}.{name}"
    raise ImproperlyConfigured(
        f"{dotted(process_class)} on {model._meta.label}: the name {name!r} is taken by {by}."
        " Give the process another process_name."
    )
