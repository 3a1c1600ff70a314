"""
What of stored values people may see: no secrets, or no values at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["MASK", "is_secret", "without_secrets", "without_values"]

#: What a key is called whose value is nobody's business. Rather one too many is hidden than one too few.
SECRET = re.compile("password|passwd|passphrase|token|secret|key|authori[sz]ation|credential|cookie", re.IGNORECASE)
MASK = "••••••••"


def is_secret(name: Any) -> bool:
    """
    Tell whether a name looks like that of a secret.
    """
    return isinstance(name, str) and SECRET.search(name) is not None


def without_secrets(value: Any) -> Any:
    """
    Return JSON as people read it, the values of keys that look like secrets replaced at any depth.
    """
    if isinstance(value, list):
        return [without_secrets(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    return {name: MASK if is_secret(name) else without_secrets(inner) for name, inner in value.items()}


def without_values(value: Any) -> Any:
    """
    Return JSON with its keys alone, every other value replaced.
    """
    if isinstance(value, list):
        return [without_values(inner) for inner in value]
    if not isinstance(value, Mapping):
        return MASK
    return {name: MASK if is_secret(name) else without_values(inner) for name, inner in value.items()}
