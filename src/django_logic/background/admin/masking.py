"""
What of the stored keywords people may see.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from django_logic.background.codec.kinds import TAG

__all__ = ["MASK", "masked"]

#: What a key is called whose value is nobody's business. Rather one too many is hidden than one too few.
SECRET = re.compile("password|passwd|passphrase|token|secret|key|authori[sz]ation|credential|cookie", re.IGNORECASE)
MASK = "••••••••"


def masked(value: Any) -> Any:
    """
    Return stored keywords with the values of keys that look like secrets replaced, at any depth.
    """
    if isinstance(value, Mapping):
        if value.get(TAG) == "json":  # what is nested deeper than databases take is stored as one text
            return masked(json.loads(value["value"]))
        return {name: MASK if is_secret(name) else masked(inner) for name, inner in value.items()}
    if isinstance(value, list):
        if len(value) == 2 and is_secret(value[0]):  # an item of a dict that is stored as a list of pairs
            return [value[0], MASK]
        return [masked(inner) for inner in value]
    return value


def is_secret(name: Any) -> bool:
    """
    Tell by its name that a value is nobody's business.
    """
    return isinstance(name, str) and name != TAG and SECRET.search(name) is not None
