"""
What of the stored keywords people may see.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django_logic.background.codec.kinds import TAG
from django_logic.masking import MASK, is_secret

__all__ = ["masked"]


def masked(value: Any) -> Any:
    """
    Return stored keywords as people read them, the values of keys that look like secrets replaced at any depth.
    """
    if isinstance(value, list):
        return [masked(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    match value.get(TAG):
        case "json":  # what is nested deeper than databases take is stored as one text
            return masked(json.loads(value["value"]))
        case "dict" | "ordered":  # names and values in turn
            return named(value["value"][::2], value["value"][1::2])
        case "namedtuple":
            return named(value["fields"], value["value"])
    return {name: hidden(name, inner) for name, inner in value.items()}


def named(names: list[Any], values: list[Any]) -> dict[str, Any]:
    """
    Return named values as people read them.
    """
    return {
        name if isinstance(name, str) else json.dumps(masked(name)): hidden(name, value)
        for name, value in zip(names, values, strict=True)
    }


def hidden(name: Any, value: Any) -> Any:
    """
    Return what may be seen of a value that has a name.
    """
    return MASK if name != TAG and is_secret(name) else masked(value)
