"""
From types in Python to JSON Schema (draft 7), as Django's JSON encoder writes their values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from django.conf import settings
from django.db import models

from django_logic.states import plain

__all__ = [
    "OPEN",
    "JsonSchema",
    "PayloadSchema",
    "either",
    "json_schema",
    "key_schema",
    "moment_schema",
    "payload_schema",
]

JsonSchema = dict[str, Any]

#: The schema of an object nobody has described.
OPEN: JsonSchema = {"type": "object"}
NULL: JsonSchema = {"type": "null"}

#: What the encoder makes of a type and of those below it; the first that fits. Text of lengths of time and of times of
#: day follows no format that validators know.
SCALARS: tuple[tuple[type[Any], JsonSchema], ...] = (
    (bool, {"type": "boolean"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (Decimal, {"type": "string", "format": "decimal"}),
    (UUID, {"type": "string", "format": "uuid"}),
    (date, {"type": "string", "format": "date"}),
    (time, {"type": "string"}),
    (timedelta, {"type": "string"}),
    (str, {"type": "string"}),
)
#: Words that say of a key of a TypedDict how it may be used.
QUALIFIERS = ("Required", "NotRequired", "ReadOnly")


class PayloadSchema(NamedTuple):
    """
    Hold the schema of a payload, and why it says less than it could; "" for no reason.
    """

    schema: JsonSchema
    note: str = ""


def payload_schema(build: Callable[..., Any]) -> PayloadSchema:
    """
    Return what the return annotation of a function says of the payloads it builds; an open object without one.

    None beside a type means an event that is not told, so it is left out.
    """
    try:
        found = json_schema(returned_by(build))
    except Exception as error:  # an annotation is code, which may name what is imported for type checkers only
        return PayloadSchema(OPEN, f"its return annotation can't be read ({type(error).__name__}: {error})")
    members = [member for member in found.get("anyOf", [found]) if member != NULL]
    if members == [{}]:
        return PayloadSchema(OPEN)
    if not members or not all(member.get("type") == "object" for member in members):
        return PayloadSchema(OPEN, "its return annotation is no dict, TypedDict or dataclass, as a payload has to be")
    return PayloadSchema(either(members))


def returned_by(build: Any) -> Any:
    """
    Return the return annotation of a function; those of its parameters may name what only type checkers import.
    """
    while isinstance(build, partial):
        build = build.func
    function = inspect.unwrap(build if inspect.isroutine(build) else type(build).__call__)
    declared = SimpleNamespace(__annotations__={"return": function.__annotations__.get("return", Any)})
    return get_type_hints(declared, globalns=function.__globals__, include_extras=True)["return"]


def json_schema(annotation: Any, within: tuple[Any, ...] = ()) -> JsonSchema:
    """
    Return the schema of the values of a type; an empty one, which takes everything, where JSON knows no such type.

    ``within`` holds the classes and aliases around it: one that holds itself is described once.
    """
    kind, arguments = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is type(None):
        return dict(NULL)
    if kind is Annotated or qualifier_of(annotation):
        return json_schema(arguments[0], within)
    if kind is Literal:
        return {"enum": [plain(value) for value in arguments]}
    if kind in (Union, UnionType):
        return either([json_schema(member, within) for member in arguments])
    if hasattr(annotation, "__supertype__"):
        return json_schema(annotation.__supertype__, within)
    if hasattr(annotation, "__value__"):
        return {} if annotation in within else json_schema(annotation.__value__, (*within, annotation))
    described = kind if isinstance(kind, type) else annotation
    return class_schema(described, arguments, within) if isinstance(described, type) else {}


def class_schema(described: type[Any], arguments: tuple[Any, ...], within: tuple[Any, ...]) -> JsonSchema:
    """
    Return the schema of the instances of a class.
    """
    if is_typed_dict(described) or is_dataclass(described):
        return dict(OPEN) if described in within else object_schema(described, (*within, described))
    if issubclass(described, Enum):
        return {"enum": [member.value for member in described]} if issubclass(described, (str, int)) else {}
    if issubclass(described, datetime):
        return moment_schema()
    for scalar, schema in SCALARS:
        if issubclass(described, scalar):
            return dict(schema)
    if issubclass(described, Mapping):
        values = json_schema(arguments[1], within) if len(arguments) > 1 else {}
        return {**OPEN, "additionalProperties": values} if values else dict(OPEN)
    is_list = issubclass(described, Sequence) and not issubclass(described, (bytes, bytearray, memoryview))
    return list_schema(described, arguments, within) if is_list else {}


def list_schema(described: type[Any], arguments: tuple[Any, ...], within: tuple[Any, ...]) -> JsonSchema:
    """
    Return the schema of a list, or of a tuple with a type for each place.
    """
    if issubclass(described, tuple) and arguments and arguments[-1] is not Ellipsis:
        places = [json_schema(member, within) for member in arguments]
        return {"type": "array", "items": places, "minItems": len(places), "maxItems": len(places)}
    items = json_schema(arguments[0], within) if arguments else {}
    return {"type": "array", "items": items} if items else {"type": "array"}


def object_schema(described: type[Any], within: tuple[Any, ...]) -> JsonSchema:
    """
    Return the schema of a TypedDict or dataclass; readers have to bear more fields than it names.
    """
    hints = get_type_hints(described, include_extras=True)
    if is_dataclass(described):
        names = [field.name for field in fields(described)]
        required = names
    else:
        names = list(hints)
        required = [name for name in names if is_required(hints[name], name in described.__required_keys__)]
    properties = {name: json_schema(hints[name], within) for name in names}
    return {**OPEN, "properties": properties, **({"required": required} if required else {})}


def either(members: Sequence[JsonSchema]) -> JsonSchema:
    """
    Return the schema of what fits at least one of these.
    """
    different = [member for place, member in enumerate(members) if member not in members[:place]]
    if {} in different:
        return {}
    return different[0] if len(different) == 1 else {"anyOf": different}


def moment_schema() -> JsonSchema:
    """
    Return the schema of a moment: one without its zone, as projects without ``USE_TZ`` write it, has no known format.
    """
    return {"type": "string", "format": "date-time"} if settings.USE_TZ else {"type": "string"}


def key_schema(key: models.Field[Any, Any]) -> dict[str, Any]:
    """
    Return the schema of a primary key; that of a link is its target's.
    """
    while isinstance(key, models.ForeignKey):
        key = key.target_field
    if isinstance(key, models.UUIDField):
        return {"type": "string", "format": "uuid"}
    if isinstance(key, models.IntegerField):
        return {"type": "integer"}
    return {"type": "string"} if isinstance(key, (models.CharField, models.TextField)) else {}


def is_typed_dict(described: type[Any]) -> bool:
    """
    Tell a TypedDict, of whichever module, from other classes.
    """
    return issubclass(described, dict) and hasattr(described, "__total__")


def qualifier_of(annotation: Any) -> str:
    """
    Return which qualifier of a key stands around a type, "" for none.
    """
    name = str(get_origin(annotation)).rpartition(".")[2]
    return name if name in QUALIFIERS else ""


def is_required(annotation: Any, declared: bool) -> bool:
    """
    Tell whether a key of a TypedDict is always there: what stands at the key counts more than what the class says,
    which annotations that are kept as text deceive.
    """
    while qualifier := qualifier_of(annotation):
        if qualifier != "ReadOnly":
            return qualifier == "Required"
        annotation = get_args(annotation)[0]
    return declared
