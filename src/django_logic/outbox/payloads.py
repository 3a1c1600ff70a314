"""
What a payload may be: a JSON object every database stores, of limited size.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from django_logic.outbox import options
from django_logic.outbox.exceptions import PayloadRefused
from django_logic.rows import SEQUENCE, Document

__all__ = ["checked", "plain_data"]

#: How JSON writes these two characters.
NUL, BACKSLASH = "\\u0000", "\\\\"


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


class Encoder(DjangoJSONEncoder):
    """
    Write what can be stored, and say where a sequence can't be.
    """

    def default(self, o: Any) -> Any:
        """
        Return what stands for a value.
        """
        if o is SEQUENCE:
            raise TypeError("the sequence of a move may stand at the top of its payload only")
        return super().default(o)


def checked(topic: str, payload: Any, *, is_of_move: bool = False) -> Document:
    """
    Return a payload that can be stored; only a move's may hold its sequence, which is filled in later.

    Raises: PayloadRefused for one that is no JSON object, holds NaN, NUL or lone surrogates, or is too large.
    """
    if not topic:
        raise PayloadRefused("A message without a topic reaches nobody. Give it one, such as 'stock.counted'.")
    if not isinstance(payload, dict):
        raise PayloadRefused(f"{topic}: a payload is a dict; found {type(payload).__name__}. Return a dict, or None.")
    try:
        document = Document(payload, Encoder)
        size = len(document.text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadRefused(f"{topic}: the payload is no JSON ({error}). Use text, numbers, lists, dicts.") from error
    if document.pending and not (is_of_move and all(isinstance(name, str) for name in document.pending)):
        raise PayloadRefused(
            f"{topic}: found SEQUENCE under {', '.join(map(repr, document.pending))}. It is for payloads of moves,"
            " whose names are text. Give it another name, or leave it out."
        )
    refuse_unfit(topic, "".join((document.text, *map(json.dumps, document.pending))), size)
    return document


def refuse_unfit(topic: str, text: str, size: int) -> None:
    """
    Refuse JSON that databases don't store, or brokers don't take.
    """
    if NUL in text and NUL in text.replace(BACKSLASH, ""):
        raise PayloadRefused(f"{topic}: the payload holds a NUL character, which no database stores. Remove it.")
    limit = options.max_payload_bytes()
    if size > limit:
        raise PayloadRefused(
            f"{topic}: the payload has {size} bytes, and OUTBOX_MAX_PAYLOAD_BYTES allows {limit}. Send a reference to"
            " what is large, or raise the limit, which brokers have, too."
        )
