"""
The catalogue as an AsyncAPI document: a channel for each topic, whose messages are events in their envelope.

Which brokers carry them is left out: destinations differ from one deployment to the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from django_logic.outbox.catalogue.entries import Emitter, Entry, Shape

__all__ = ["CONTENT_TYPE", "asyncapi", "worded"]

VERSION = "3.0.0"
#: The media type of `django_logic.outbox.envelope`, which can't be imported without the library of the envelope.
CONTENT_TYPE = "application/cloudevents+json"
CLOUD_EVENT = "CloudEvent"
TEXT = {"type": "string", "minLength": 1}

#: What envelopes of all topics have in common; what an event does not have is left out of its envelope.
ENVELOPE: Mapping[str, Any] = {
    "type": "object",
    "description": "The envelope of an event: CloudEvents 1.0 in structured form.",
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "format": "uuid", "description": "The same whenever an event is delivered again."},
        "source": {**TEXT, "format": "uri-reference", "description": "The app and model of the object."},
        "type": {**TEXT, "description": "The topic."},
        "subject": {**TEXT, "description": "The key of the object."},
        "time": {"type": "string", "format": "date-time", "description": "When it happened."},
        "datacontenttype": {"const": "application/json"},
        "dataschema": {**TEXT, "description": "The name of the payload's shape."},
        "partitionkey": {**TEXT, "description": "The key of the object: events of one key come in order."},
        "sequence": {
            "type": "string",
            "pattern": "^[0-9]+$",
            "description": "The number of the move in the history of the object.",
        },
        "traceparent": {**TEXT, "description": "The trace the move was made in: W3C Trace Context."},
        "data": {"type": "object"},
    },
    "required": ["specversion", "id", "source", "type", "subject", "time", "datacontenttype", "partitionkey", "data"],
}


def asyncapi(entries: Iterable[Entry], *, title: str, version: str) -> dict[str, Any]:
    """
    Return the document of these topics, the same whenever the code is.
    """
    channels, operations, messages = {}, {}, {}
    schemas: dict[str, Any] = {CLOUD_EVENT: ENVELOPE}
    for entry in entries:
        name, numbered = identifier(entry.topic), enumerate(entry.shapes, start=1)
        # No topic holds the character between, so no other one's message has this name.
        own = {identifier(f"{entry.topic}\0{place}" if place > 1 else entry.topic): shape for place, shape in numbered}
        channels[name] = {
            # Braces would be read as parameters, and nothing can escape them.
            "address": None if re.search(r"[{}]", entry.topic) else entry.topic,
            "title": entry.topic,
            "messages": {key: {"$ref": f"#/components/messages/{key}"} for key in own},
        }
        operations[f"send.{name}"] = {
            "action": "send",
            "channel": {"$ref": f"#/channels/{name}"},
            "summary": "; ".join(map(told_by, entry.emitters)),
            "messages": [{"$ref": f"#/channels/{name}/messages/{key}"} for key in own],
        }
        for key, shape in own.items():
            messages[key] = message_of(entry, key)
            schemas[f"event.{key}"] = envelope_of(entry.topic, shape, key)
            schemas[f"payload.{key}"] = dict(shape.payload)
    return {
        "asyncapi": VERSION,
        "info": {"title": title, "version": version},
        "defaultContentType": CONTENT_TYPE,
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": schemas},
    }


def identifier(topic: str) -> str:
    """
    Return a topic as the name of a component; one with letters that such names can't have gets a mark of its own.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", topic)
    return plain if plain == topic else f"{plain}-{sha256(topic.encode()).hexdigest()[:8]}"


def message_of(entry: Entry, key: str) -> dict[str, Any]:
    """
    Return a message of a topic.
    """
    return {
        "name": entry.topic,
        "title": entry.topic,
        "contentType": CONTENT_TYPE,
        "payload": {"$ref": f"#/components/schemas/event.{key}"},
    }


def envelope_of(topic: str, shape: Shape, key: str) -> dict[str, Any]:
    """
    Return the schema of a whole message: what all envelopes have, and what only this one says.
    """
    known: dict[str, Any] = {
        "source": {"const": "/" + quote(shape.aggregate.replace(".", "/"))},
        "type": {"const": topic},
        "data": {"$ref": f"#/components/schemas/payload.{key}"},
    }
    required = []
    if shape.schema:
        known["dataschema"] = {"const": shape.schema}
        required.append("dataschema")
    if shape.is_numbered:
        required.append("sequence")
    own = {"type": "object", "properties": known, **({"required": required} if required else {})}
    return {"allOf": [{"$ref": f"#/components/schemas/{CLOUD_EVENT}"}, own]}


def told_by(emitter: Emitter) -> str:
    """
    Return in a few words what an event tells.
    """
    starts = ", ".join(map(worded, emitter.starts))
    way = starts if emitter.end is None else f"{starts} -> {worded(emitter.end)}"
    return f"{emitter.model} {emitter.action}: {way}"


def worded(state: Any) -> str:
    """
    Return a state as people read it.
    """
    return "no state" if state is None else str(state)
