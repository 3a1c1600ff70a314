"""
System checks: what can be wrong between settings, processes and models, found before it hurts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core import checks as django_checks

from django_logic import conf
from django_logic.binding import ModelProcessBinding, ProcessManager
from django_logic.constraints import TransitionConstraint
from django_logic.rules import signature_offenders
from django_logic.states import nearest
from django_logic.tree import dotted, tree_of

__all__ = ["register"]

TAG = "django_logic"


def register() -> None:
    """
    Register every check under the tag ``django_logic``.
    """
    for check in (check_settings, check_bindings):
        django_checks.register(check, TAG)


def check_settings(**_keywords: Any) -> list[django_checks.CheckMessage]:
    """
    Warn of settings nobody reads.
    """
    return [
        django_checks.Warning(
            f"settings.DJANGO_LOGIC[{key!r}] is read by nothing.{nearest(key, conf.DEFAULTS)}",
            hint="Correct or remove it.",
            id="django_logic.W004",
        )
        for key in conf.unknown_keys()
    ]


def check_bindings(**_keywords: Any) -> list[django_checks.CheckMessage]:
    """
    Check every bound process against its model.
    """
    found: list[django_checks.CheckMessage] = [*constraints()]
    for binding in ProcessManager.bindings:
        found += missing_app(binding)
        found += signatures(binding)
        found += states(binding)
    return found


def missing_app(binding: ModelProcessBinding) -> Iterator[django_checks.CheckMessage]:
    """
    Report background declarations of a project that has not installed what runs them.
    """
    if tree_of(binding.process_class).has_background and not apps.is_installed("django_logic.background"):
        yield django_checks.Error(
            f"{dotted(binding.process_class)} declares background work, whose app is not installed.",
            hint='Add "django_logic.background" to INSTALLED_APPS and run manage.py migrate.',
            obj=binding.model,
            id="django_logic.E010",
        )


def signatures(binding: ModelProcessBinding) -> Iterator[django_checks.CheckMessage]:
    """
    Warn of hooks that can't take the instance.
    """
    for offender in signature_offenders(binding.process_class):
        yield django_checks.Warning(offender, obj=binding.model, id="django_logic.W001")


def states(binding: ModelProcessBinding) -> Iterator[django_checks.CheckMessage]:
    """
    Report declared states the column can't hold.
    """
    field = binding.model._meta.get_field(binding.state_field)
    choices = {value for value, _label in getattr(field, "flatchoices", ())}
    longest = getattr(field, "max_length", None)
    for state in sorted(tree_of(binding.process_class).states, key=str):
        complaint = ""
        if choices and state not in choices:
            complaint = f"is not among the field's choices.{nearest(state, choices)}"
        elif longest is not None and len(str(state)) > longest:
            complaint = f"is longer than the column's {longest} characters."
        elif not fits(field, state):
            complaint = f"can't be stored in a {type(field).__name__}."
        if complaint:
            yield django_checks.Error(
                f"{dotted(binding.process_class)}: the state {state!r} {complaint}",
                hint=f"Correct the declaration or {binding.model._meta.label}.{binding.state_field}.",
                obj=binding.model,
                id="django_logic.E004",
            )


def fits(field: Any, state: Any) -> bool:
    """
    Tell whether a field stores this very value, not another one it would be turned into.
    """
    if state is None:
        return bool(field.null)
    try:
        return bool(field.to_python(state) == state)
    except Exception:  # to_python refuses in its own words, and custom fields in any
        return False


def constraints() -> Iterator[django_checks.CheckMessage]:
    """
    Compare what the database enforces of each column with what the processes that share it declare.
    """
    columns: dict[tuple[Any, str], list[ModelProcessBinding]] = {}
    for binding in ProcessManager.bindings:
        field: Any = binding.model._meta.get_field(binding.state_field)
        columns.setdefault((field.model._meta.concrete_model, field.name), []).append(binding)
    for (owner, field_name), bindings in columns.items():
        declared = frozenset().union(*(tree_of(binding.process_class).edges for binding in bindings))
        names = ", ".join(dict.fromkeys(dotted(binding.process_class) for binding in bindings))
        entries = [entry for entry in owner._meta.constraints if isinstance(entry, TransitionConstraint)]
        found = [entry for entry in entries if entry.field == field_name]
        where = f"{owner._meta.label}.{field_name}"
        paste = entry_to_paste(owner, field_name, declared)
        if not found:
            yield django_checks.Warning(
                f"{where}: the database does not enforce the moves of {names}.",
                hint=f"Add to {owner._meta.object_name}.Meta.constraints:\n{paste}",
                obj=owner,
                id="django_logic.W005",
            )
        for entry in found:
            told = difference(declared, moves_of(entry))
            if told:
                yield django_checks.Error(
                    f"{where}: the constraint {entry.name!r} differs from {names}: {told}.",
                    hint=f"Make it read:\n{paste}",
                    obj=owner,
                    id="django_logic.E005",
                )


def difference(declared: frozenset[Any], enforced: frozenset[Any]) -> str:
    """
    Say which moves the database lacks or allows beyond what is declared; empty when there are none.
    """
    told = [f"lacks {start!r} → {end!r}" for start, end in sorted(declared - enforced, key=str)]
    told += [f"allows {start!r} → {end!r}" for start, end in sorted(enforced - declared, key=str)]
    return "; ".join(told)


def moves_of(entry: TransitionConstraint) -> frozenset[tuple[Any, Any]]:
    """
    Return the moves a constraint allows; staying put is none.
    """
    return frozenset((start, end) for start, end in entry.edges if start != end)


def entry_to_paste(owner: Any, field: str, edges: frozenset[tuple[Any, Any]]) -> str:
    """
    Write the constraint as source text.
    """
    rows: dict[Any, list[Any]] = {}
    for start, end in sorted(edges, key=str):
        rows.setdefault(start, []).append(end)
    table = "".join(f"        {start!r}: {ends!r},\n" for start, ends in rows.items())
    name = f"{owner._meta.model_name}_{field}_moves"
    return f'TransitionConstraint(\n    field="{field}",\n    table={{\n{table}    }},\n    name="{name}",\n),'
