"""
The entries of the catalogue: one for each topic, with who emits it and what its payloads look like.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django_logic.outbox.catalogue.emissions import Kind

__all__ = ["Emitter", "Entry", "Shape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitter:
    """
    Say who emits an event: a declaration of a process, and the states it leads from and to.

    ``end`` is None for an action, which leaves the state as it is.
    """

    aggregate: str
    model: str
    process: str
    process_name: str
    action: str
    kind: Kind
    starts: tuple[Any, ...]
    end: Any

    def as_dict(self) -> dict[str, Any]:
        """
        Return it as JSON takes it.
        """
        return {
            "aggregate": self.aggregate,
            "model": self.model,
            "process": self.process,
            "process_name": self.process_name,
            "action": self.action,
            "kind": str(self.kind),
            "from": list(self.starts),
            "to": self.end,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """
    Hold one form of payload: of which objects, under which name, its JSON Schema, and who builds it; "" for nobody.
    """

    aggregate: str
    schema: str
    payload: Mapping[str, Any]
    builder: str = ""
    #: False for what actions tell, which no number in the history belongs to.
    is_numbered: bool = True
    #: Why the payload is not described; "" for no reason.
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """
        Return it as JSON takes it.
        """
        return {
            "aggregate": self.aggregate,
            "schema": self.schema,
            "builder": self.builder,
            "is_numbered": self.is_numbered,
            "payload": self.payload,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """
    Hold what is known of one topic.
    """

    topic: str
    emitters: tuple[Emitter, ...]
    shapes: tuple[Shape, ...]

    def as_dict(self) -> dict[str, Any]:
        """
        Return it as JSON takes it.
        """
        return {
            "topic": self.topic,
            "emitters": [emitter.as_dict() for emitter in self.emitters],
            "payloads": [shape.as_dict() for shape in self.shapes],
        }
