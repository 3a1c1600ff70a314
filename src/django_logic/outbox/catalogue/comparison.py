"""
What has changed between a published document and the code: topics that came, that went, that tell something else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Differences", "compared"]

#: What the code says of a document; the rest, such as servers, its owner may write as he likes.
OWN_PARTS = ("asyncapi", "defaultContentType", "channels", "operations", "components")


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """
    Hold the topics that differ; ``changed`` maps each to what is different, ``has_others`` tells of the rest.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: Mapping[str, str]
    has_others: bool

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.has_others)


def compared(published: Mapping[str, Any], current: Mapping[str, Any]) -> Differences:
    """
    Compare a published document with the current one; where messages stand in the document does not matter.
    """
    before, now = topics_of(published), topics_of(current)
    changed = {topic: change_between(before[topic], now[topic]) for topic in before.keys() & now.keys()}
    found = {topic: change for topic, change in sorted(changed.items()) if change}
    added, removed = sorted(now.keys() - before.keys()), sorted(before.keys() - now.keys())
    is_same = all(published.get(part) == current.get(part) for part in OWN_PARTS)
    return Differences(
        added=tuple(added),
        removed=tuple(removed),
        changed=found,
        has_others=not (is_same or added or removed or found),
    )


def topics_of(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """
    Return by topic what a document says of it, with everything it refers to in place.
    """
    channels = document.get("channels")
    told: dict[str, dict[str, Any]] = {}
    for name, channel in channels.items() if isinstance(channels, Mapping) else ():
        whole = resolved(channel, document)
        if isinstance(whole, Mapping):
            topic = whole.get("title") or whole.get("address") or name
            told[str(topic)] = {**whole, "operations": operations_of(document, f"#/channels/{name}")}
    return told


def operations_of(document: Mapping[str, Any], channel: str) -> list[str]:
    """
    Return what is done with a channel.
    """
    operations = document.get("operations")
    found = operations.values() if isinstance(operations, Mapping) else ()
    return sorted(
        f"{one.get('summary')}" if one.get("action") == "send" else f"{one.get('action')}: {one.get('summary')}"
        for one in found
        if isinstance(one, Mapping) and one.get("channel") == {"$ref": channel}
    )


def resolved(value: Any, document: Mapping[str, Any], within: tuple[str, ...] = ()) -> Any:
    """
    Return a part of a document with what its references name; what can't be found stays a reference.
    """
    if isinstance(value, list):
        return [resolved(one, document, within) for one in value]
    if not isinstance(value, Mapping):
        return value
    reference = value.get("$ref")
    if not isinstance(reference, str):
        return {name: resolved(one, document, within) for name, one in value.items()}
    target: Any = document
    for step in reference.removeprefix("#/").split("/"):
        target = target.get(step) if isinstance(target, Mapping) else None
    return value if target is None or reference in within else resolved(target, document, (*within, reference))


def change_between(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """
    Say what is different in a topic, "" for nothing: its fields where they tell it, else that something is.
    """
    if as_text(before) == as_text(now):
        return ""
    old, new = fields_of(before), fields_of(now)
    words = [f"+ {name}" for name in sorted(new.keys() - old.keys())]
    words += [f"- {name}" for name in sorted(old.keys() - new.keys())]
    words += [
        f"{name}: {old[name]} -> {new[name]}" for name in sorted(old.keys() & new.keys()) if old[name] != new[name]
    ]
    if words:
        return ", ".join(words)
    was, became = before["operations"], now["operations"]
    return f"emitted by {'; '.join(became)} (was {'; '.join(was)})" if was != became else "its messages"


def as_text(told: Mapping[str, Any]) -> str:
    """
    Return what is said of a topic as text that does not depend on the names of messages.
    """
    messages = told.get("messages")
    listed = list(messages.values()) if isinstance(messages, Mapping) else [messages]
    ordered = sorted(json.dumps(message, sort_keys=True) for message in listed)
    return json.dumps({**told, "messages": ordered}, sort_keys=True)


def fields_of(told: Mapping[str, Any]) -> dict[str, str]:
    """
    Return the fields of a topic's payloads, each with its schemas as text.
    """
    found: dict[str, set[str]] = {}
    for payload in payloads_in(told.get("messages")):
        required = payload.get("required")
        for name, schema in payload["properties"].items():
            need = "" if isinstance(required, list) and name in required else " or absent"
            found.setdefault(name, set()).add(json.dumps(schema, sort_keys=True) + need)
    return {name: " or ".join(sorted(schemas)) for name, schemas in found.items()}


def payloads_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """
    Yield the schemas of ``data`` within a part of a document.
    """
    if isinstance(value, Mapping):
        for name, one in value.items():
            if name == "data" and isinstance(one, Mapping):
                members = one["anyOf"] if isinstance(one.get("anyOf"), list) else [one]
                yield from (m for m in members if isinstance(m, Mapping) and isinstance(m.get("properties"), Mapping))
            else:
                yield from payloads_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from payloads_in(one)
