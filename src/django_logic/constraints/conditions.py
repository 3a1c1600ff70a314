"""
Renaming a state wherever a model's declaration in a migration mentions it.

Conditions of constraints and indexes, choices and defaults; expressions other than plain comparisons are left alone.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Q

from django_logic.constraints.edges import State, in_order
from django_logic.constraints.transition import TransitionConstraint
from django_logic.states import plain

__all__ = ["renamed_entry", "renamed_field"]

#: The keywords by which constraints and indexes of all supported Django versions hold a condition.
CONDITIONS = ("condition", "check")


def renamed_entry(entry: Any, field: str, old: State, new: State) -> Any:
    """
    Return a constraint or an index with a state of a field called otherwise; itself where it mentions none.
    """
    if isinstance(entry, TransitionConstraint):
        return entry.renamed(old, new) if entry.field == field and old in entry.rows else entry
    _path, args, keywords = entry.deconstruct()
    held = {name: keywords[name] for name in CONDITIONS if isinstance(keywords.get(name), Q)}
    told = {name: renamed_condition(condition, field, old, new) for name, condition in held.items()}
    return entry if told == held else type(entry)(*args, **{**keywords, **told})


def renamed_condition(condition: Q, field: str, old: State, new: State) -> Q:
    """
    Return a condition in which comparisons with the old state are comparisons with the new one.
    """
    is_canonical = is_value_set(condition, field)

    def other(child: Any) -> Any:
        if isinstance(child, Q):
            return renamed_condition(child, field, old, new)
        if not isinstance(child, tuple):
            return child
        lookup, value = child
        if lookup in (field, f"{field}__exact") and plain(value) == old:
            return (lookup, new)
        if lookup == f"{field}__in" and isinstance(value, list | tuple) and old in map(plain, value):
            told = [new if plain(state) == old else state for state in value]
            return (lookup, type(value)(in_order(told) if is_canonical else told))
        if lookup == f"{field}__isnull" and value is True and old is None:
            return (field, new)
        return child

    return Q(*map(other, condition.children), _connector=condition.connector, _negated=condition.negated)


def is_value_set(condition: Q, field: str) -> bool:
    """
    Recognise what a StateConstraint leaves in a migration, whose states have an order of ours.
    """
    children: dict[str, Any] = dict(child for child in condition.children if isinstance(child, tuple))
    states = children.pop(f"{field}__in", None)
    if not isinstance(states, list | tuple) or len(condition.children) > 2 or set(children) - {f"{field}__isnull"}:
        return False
    listed = [plain(state) for state in states]
    return {type(state) for state in listed} in ({str}, {int}) and listed == list(in_order(listed))


def renamed_field(field: Any, old: State, new: State, label: str | None) -> Any:
    """
    Return a model field whose choices and defaults call a state otherwise; itself where they don't mention it.
    """
    _name, _path, args, keywords = field.deconstruct()
    told = dict(keywords)
    if isinstance(keywords.get("choices"), list):
        told["choices"] = renamed_choices(keywords["choices"], old, new, label)
    for name in ("default", "db_default"):
        if name in keywords and is_state(keywords[name], old):
            told[name] = new
    return field if told == keywords else type(field)(*args, **told)


def is_state(default: Any, state: State) -> bool:
    """
    Tell whether a default is a state, bare or wrapped into Value() as a database default is.
    """
    return bool(plain(getattr(default, "value", default)) == state)


def renamed_choices(choices: list[Any], old: State, new: State, label: str | None) -> list[Any]:
    """
    Return choices, grouped or not, with one value called otherwise.
    """
    told: list[Any] = []
    for value, words in choices:
        if isinstance(words, list | tuple):
            told.append((value, renamed_choices(list(words), old, new, label)))
        elif plain(value) == old:
            told.append((new, label or renamed_label(str(words), old, new)))
        else:
            told.append((value, words))
    return told


def renamed_label(words: str, old: State, new: State) -> str:
    """
    Return the label Django makes from the new name, if the old one was made from the old; else leave it.
    """
    return titled(new) if words == titled(old) else words


def titled(state: State) -> str:
    """
    Return the label Django gives a member that has none.
    """
    return str(state).replace("_", " ").title()
