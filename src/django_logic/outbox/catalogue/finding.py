"""
Finding what machines emit: every declaration is asked, and what goes by one topic becomes one entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django_logic.hooks import name_of
from django_logic.machines import Machine, machines
from django_logic.outbox.catalogue.emissions import Emission, Kind, emissions_of
from django_logic.outbox.catalogue.entries import Emitter, Entry, Shape
from django_logic.outbox.catalogue.schemas import PayloadSchema, key_schema, moment_schema, payload_schema
from django_logic.states import as_text
from django_logic.tree import dotted

__all__ = ["catalogue"]


@dataclass(frozen=True, slots=True)
class Found:
    """
    Hold one emission in its place: the machine, the process that declares it, the action.
    """

    machine: Machine
    process: str
    action: str
    emission: Emission

    @property
    def aggregate(self) -> str:
        """
        Return what messages call the model.
        """
        return f"{self.machine.column.app_label}.{self.machine.column.model_name}"

    @property
    def is_numbered(self) -> bool:
        """
        Tell whether the event tells a write.
        """
        return self.emission.kind is not Kind.ACTION


def catalogue(chosen: Iterable[Machine] | None = None) -> list[Entry]:
    """
    Return every event that these machines can emit, all bound ones by default, in the order of the topics.
    """
    by_topic: dict[str, list[Found]] = {}
    for machine in machines() if chosen is None else chosen:
        for candidate in machine.candidates:
            for emission in emissions_of(machine.column, candidate):
                found = Found(machine, dotted(candidate.owner), candidate.transition.action_name, emission)
                by_topic.setdefault(emission.told.topic, []).append(found)
    return [
        Entry(topic=topic, emitters=emitters_of(found), shapes=shapes_of(found))
        for topic, found in sorted(by_topic.items())
    ]


def emitters_of(found: Iterable[Found]) -> tuple[Emitter, ...]:
    """
    Return who emits a topic; declarations that differ in their sources only are one.
    """
    groups: dict[tuple[Any, ...], list[Found]] = {}
    for one in found:
        kind, end = one.emission.kind, one.emission.end
        key = (one.aggregate, one.machine.column.process_name, one.process, one.action, kind, as_text(end))
        groups.setdefault(key, []).append(one)
    return tuple(
        Emitter(
            aggregate=key[0],
            model=group[0].machine.label,
            process=group[0].process,
            process_name=group[0].machine.column.process_name,
            action=group[0].action,
            kind=group[0].emission.kind,
            starts=starts_of(group),
            end=group[0].emission.end,
        )
        for key, group in sorted(groups.items(), key=lambda pair: tuple(map(str, pair[0])))
    )


def shapes_of(found: Iterable[Found]) -> tuple[Shape, ...]:
    """
    Return the forms that payloads of a topic have: one for each model and builder, moves apart from actions.
    """
    groups: dict[tuple[Any, ...], list[Found]] = {}
    for one in found:
        told = one.emission.told
        groups.setdefault((one.aggregate, told.schema, id(told.build), one.is_numbered), []).append(one)
    shapes = sorted(map(shape_of, groups.values()), key=lambda shape: json.dumps(shape.as_dict(), default=str))
    return tuple(shape for place, shape in enumerate(shapes) if shape not in shapes[:place])


def shape_of(group: list[Found]) -> Shape:
    """
    Return the form that one function, or nobody, gives to payloads.
    """
    build = group[0].emission.told.build
    described = PayloadSchema(default_schema(group)) if build is None else payload_schema(build)
    return Shape(
        aggregate=group[0].aggregate,
        schema=group[0].emission.told.schema,
        payload=described.schema,
        builder="" if build is None else place_of(build),
        is_numbered=group[0].is_numbered,
        note=described.note,
    )


def default_schema(group: list[Found]) -> dict[str, Any]:
    """
    Return the schema of what `django_logic.outbox.events` tells of every move.
    """
    column = group[0].machine.column
    text: dict[str, Any] = {"type": "string"}
    starts, ends = starts_of(group), ends_of(group)
    properties = {
        f"{column.model_name}_id": key_schema(column.owner._meta.pk),
        "object_id": text,
        "from": {"enum": list(starts)},
        "to": {"enum": list(ends)},
        "action": {"enum": sorted({one.action for one in group})},
        "sequence": {"type": "integer" if group[0].is_numbered else "null"},
        "actor": text,
        "reason": text,
        "occurred_at": moment_schema(),
    }
    return {"type": "object", "properties": properties, "required": list(properties)}


def starts_of(group: Iterable[Found]) -> tuple[Any, ...]:
    """
    Return the states that events come from, in the order of the machine.
    """
    return in_order(group, lambda one: one.emission.starts)


def ends_of(group: Iterable[Found]) -> tuple[Any, ...]:
    """
    Return the states that events tell; an action's is the one it comes from.
    """
    return in_order(group, lambda one: {one.emission.end} if one.is_numbered else one.emission.starts)


def in_order(group: Iterable[Found], states_of: Callable[[Found], Iterable[Any]]) -> tuple[Any, ...]:
    """
    Return states of several emissions, each once, in the order of their machines.
    """
    found: dict[Any, None] = {}
    for one in group:
        wanted = set(states_of(one))
        found |= dict.fromkeys(state for state in one.machine.states.values() if state in wanted)
    return tuple(found)


def place_of(build: Any) -> str:
    """
    Return the dotted path of a function that builds payloads.
    """
    while isinstance(build, partial):
        build = build.func
    return f"{build.__module__}.{getattr(build, '__qualname__', name_of(build))}"
