"""
The codec of keywords: what a caller passes becomes JSON, and comes back on a worker with the same names and types.

What JSON has no word for is an object with the key ``$type``. Dicts keep their order, which JSON columns don't; a part
that a structure holds twice comes back twice. What can't be stored is refused, and what would come back as a simpler
type is stored with a warning, or refused under ``STRICT_KWARGS_SERIALIZATION``.
Not done here: the user, the actor, the ids and the context, which are no keywords of the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_logic.background.codec.decoding import Decoder
from django_logic.background.codec.encoding import DEEPEST, LARGEST, Encoder

__all__ = ["DEEPEST", "LARGEST", "decode", "encode"]


def encode(keywords: Mapping[str, Any], label: str = "") -> dict[str, Any]:
    """
    Turn a caller's keywords into what a JSON column keeps faithfully on every database.

    Shape: the same names, whose order is not kept. ``label`` opens the messages: the name of the call.
    Raises: KwargsSerializationError naming the place in the structure that can't be stored.
    """
    encoder = Encoder(label)
    payload = {name: encoder.keyword(name, value) for name, value in keywords.items()}
    encoder.weigh(payload)
    return payload


def decode(payload: Mapping[str, Any], alias: str) -> dict[str, Any]:
    """
    Turn what `encode` made back into keywords; model instances are loaded, in one query for each keyword and model.

    ``alias`` is the database of references that name none.
    Raises: VanishedReference when an instance is gone; ValueError for what can't be read.
    """
    if not isinstance(payload, Mapping):
        raise ValueError(f"The stored keywords can't be read: expected a JSON object; found {type(payload).__name__}.")
    decoder = Decoder(alias)
    return {name: decoder.keyword(name, stored) for name, stored in payload.items()}
