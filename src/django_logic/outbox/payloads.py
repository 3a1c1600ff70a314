"""
What a payload may be: a JSON object every database stores, of limited size.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from django_logic.outbox import options
from django_logic.outbox.exceptions import PayloadRefused
from django_logic.rows import places_of_sequence

__all__ = ["checked", "plain_data"]


def plain_data(topic: str, built: Any) -> Any:
    """
    Return what a function built for a topic with dicts in the place of dataclasses, at any depth.

    Raises: PayloadRefused for what holds itself.
    """
    try:
        return as_data(built)
    except RecursionError as error:
        raise PayloadRefused(f"{topic}: the payload is no JSON (it holds itself). Take it apart.") from error


def as_data(value: Any) -> Any:
    """
    Return a value with dicts in the place of dataclasses.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {name: as_data(inner) for name, inner in value.items()}
    return [as_data(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def checked(topic: str, payload: Any) -> Mapping[str, Any]:
    """
    Return a payload that can be stored.

    Raises: PayloadRefused for one that is no JSON object, holds NaN, NUL or lone surrogates, or is too large.
    """
    if not isinstance(payload, Mapping):
        raise PayloadRefused(f"{topic}: a payload is a dict; found {type(payload).__name__}. Return a dict, or None.")
    pending = places_of_sequence(payload)
    known = {name: value for name, value in payload.items() if name not in pending} if pending else payload
    try:
        text = json.dumps(known, cls=DjangoJSONEncoder, allow_nan=False, ensure_ascii=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadRefused(f"{topic}: the payload is no JSON ({error}). Use text, numbers, lists, dicts.") from error
    if "\\u0000" in text:
        raise PayloadRefused(f"{topic}: the payload holds a NUL character, which no database stores. Remove it.")
    limit = options.max_payload_bytes()
    if size > limit:
        raise PayloadRefused(
            f"{topic}: the payload has {size} bytes, and OUTBOX_MAX_PAYLOAD_BYTES allows {limit}. Send a reference to"
            " what is large, or raise the limit, which brokers have, too."
        )
    return payload
