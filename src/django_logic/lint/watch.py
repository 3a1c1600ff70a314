"""
What the audit looks for: the bound state fields, and the classes whose objects hold them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from django.apps import apps
from django.db import models

from django_logic.binding import ModelProcessBinding, ProcessManager

__all__ = ["Watch", "Watched", "bare_name", "watch", "words_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """
    Hold one field name: for each model it is bound on, the names of the classes whose objects may hold it.
    """

    families: dict[str, frozenset[str]]

    @property
    def labels(self) -> tuple[str, ...]:
        """
        Return the bound models.
        """
        return tuple(sorted(self.families))

    @property
    def classes(self) -> frozenset[str]:
        """
        Return the names of all classes whose objects may hold the field.
        """
        return frozenset().union(*self.families.values())

    def meant_by(self, names: Iterable[str]) -> tuple[str, ...]:
        """
        Return the bound models that any of these names stands for, all of them when none does.
        """
        wanted = {name.lower() for name in names}
        told = [label for label in self.labels if wanted & {name.lower() for name in self.families[label]}]
        return tuple(told) or self.labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """
    Hold everything the audit has to know, so that it reads source text and imports nothing.

    ``models`` names every installed model, ``holders`` the classes that hold a watched field, both by dotted path;
    ``modules`` gives the dotted name of each file that models are written in.
    """

    fields: dict[str, Watched]
    models: frozenset[str] = frozenset()
    holders: frozenset[str] = frozenset()
    modules: dict[str, str] = field(default_factory=dict)

    def is_namesake(self, name: str) -> bool:
        """
        Tell whether a dotted name is a model that only shares its last part with a bound one.
        """
        return name in self.models and name not in self.holders

    def is_other_model(self, name: str, held: str) -> bool:
        """
        Tell whether a class name is an installed model's that does not hold the field.
        """
        bare = bare_name(name)
        return bare not in self.fields[held].classes and bare in {bare_name(model) for model in self.models}

    def means_another_model(self, variable: str, held: str) -> bool:
        """
        Tell whether a variable is called after an installed model, or many of it, that does not hold the field.
        """
        words = words_of(variable)
        known = {bare_name(model).lower() for model in self.models}
        return bool(words & known) and not words & {name.lower() for name in self.fields[held].classes}


def words_of(variable: str) -> set[str]:
    """
    Return the class names a variable may be called after, in lower case.
    """
    plain = variable.replace("_", "").lower()
    return {plain, plain.removesuffix("s")}


def bare_name(dotted: str) -> str:
    """
    Return the last part of a dotted name.
    """
    return dotted.rpartition(".")[2]


def watch(bindings: Iterable[ModelProcessBinding] | None = None) -> Watch:
    """
    Collect what is bound: parents, proxies and children of a bound model hold its field as well.
    """
    found: dict[str, dict[str, frozenset[str]]] = {}
    holders: set[str] = set()
    installed = apps.get_models(include_auto_created=True)
    for binding in ProcessManager.bindings if bindings is None else bindings:
        model = binding.model
        family = [entry for entry in installed if issubclass(entry, model)]
        classes = {entry for member in (model, *family) for entry in member.__mro__ if holds(entry)}
        holders |= {path_of(entry) for entry in classes}
        column = model._meta.get_field(binding.state_field)
        for name in {column.name, getattr(column, "attname", column.name)}:
            found.setdefault(name, {})[model._meta.label] = frozenset(entry.__name__ for entry in classes)
    return Watch(
        fields={name: Watched(families=families) for name, families in found.items()},
        models=frozenset(map(path_of, installed)),
        holders=frozenset(holders),
        modules={file_of(model.__module__): model.__module__ for model in installed},
    )


def path_of(entry: type) -> str:
    """
    Return where a class can be imported from.
    """
    return f"{entry.__module__}.{entry.__name__}"


def file_of(module: str) -> str:
    """
    Return the file a loaded module was read from, empty where there is none.
    """
    return str(Path(getattr(sys.modules.get(module), "__file__", None) or "").resolve())


def holds(entry: type) -> bool:
    """
    Tell whether a class of a model's family is the project's own, so that its code may write the field.
    """
    own_module = entry.__module__.partition(".")[0]
    return entry is not models.Model and own_module not in ("builtins", "django", "django_logic", "typing")
