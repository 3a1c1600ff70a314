"""
From JSON back to Python. What stored data of another time or another code may raise while it is read is a ValueError.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import Enum, Flag
from typing import Any

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import models
from django.utils.connection import ConnectionDoesNotExist

from django_logic import conf
from django_logic.background.codec.kinds import COLLECTIONS, SCALARS, TAG, find_class, logger
from django_logic.background.codec.moments import read_moment
from django_logic.background.exceptions import VanishedReference

__all__ = ["Decoder"]

DAMAGE = (
    ArithmeticError,
    AttributeError,
    ConnectionDoesNotExist,
    LookupError,
    RecursionError,
    TypeError,
    ValidationError,
    ValueError,
)

Stored = Mapping[str, Any]


class Decoder:
    """
    Decode the keywords of one message; an object that two keywords refer to is loaded once and is one object.
    """

    __slots__ = ("alias", "loaded", "name")

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.name = ""
        self.loaded: dict[tuple[str, str], dict[Any, models.Model]] = {}

    def keyword(self, name: str, stored: Any) -> Any:
        """
        Decode one keyword.

        Raises: ValueError naming the keyword, VanishedReference.
        """
        if type(stored) is not dict and type(stored) is not list:
            return stored
        self.name = name
        try:
            if type(stored) is dict and stored.get(TAG) == "json":
                stored = json.loads(stored["value"])
            self.load(stored)
            return self.value(stored)
        except DAMAGE as error:
            raise ValueError(
                f"The stored keyword {name} can't be read; found {type(error).__name__}: {error}."
                " Run it where the code that stored it is known, or cancel it."
            ) from error

    def value(self, stored: Any) -> Any:
        """
        Decode anything.
        """
        if type(stored) is list:
            return self.items(stored)
        if type(stored) is not dict:
            return stored
        if TAG not in stored:
            return {key: self.value(item) for key, item in stored.items()}
        read = READERS.get(stored[TAG])
        if read is None:
            raise ValueError(f"the unknown type {stored[TAG]!r}")
        return read(self, stored)

    def items(self, stored: list[Any]) -> list[Any]:
        """
        Decode what a container holds.
        """
        return [self.value(item) for item in stored]

    def pairs(self, stored: Stored) -> dict[Any, Any]:
        """
        Decode keys and values in turn.
        """
        flat = self.items(stored["value"])
        made = dict(zip(flat[::2], flat[1::2], strict=True))
        if 2 * len(made) != len(flat):
            raise ValueError("keys that have become equal")
        return made

    def member(self, stored: Stored) -> Any:
        """
        Decode a member of an enum; its plain value where the class or the member is gone.
        """
        kind = find_class(stored["class"])
        if kind is not None and issubclass(kind, Enum):
            if stored["name"] in kind.__members__:
                return kind[stored["name"]]
            # A combination of flags has no name of its own.
            if issubclass(kind, Flag):
                with suppress(ValueError):
                    return kind(self.value(stored["value"]))
        self.degrade(f"the enum member {stored['class']}.{stored['name']}", "its plain value")
        return self.value(stored["value"])

    def named(self, stored: Stored) -> Any:
        """
        Decode a namedtuple by the names of its fields; a plain tuple where the class is gone or takes other fields.
        """
        kind: Any = find_class(stored["class"])
        items = self.items(stored["value"])
        if kind is not None and issubclass(kind, tuple) and hasattr(kind, "_make"):
            if list(kind._fields) == stored["fields"]:
                return kind._make(items)
            with suppress(TypeError):
                return kind(**dict(zip(stored["fields"], items, strict=True)))
        self.degrade(f"the namedtuple {stored['class']} with the fields {stored['fields']}", "a plain tuple")
        return tuple(items)

    def degrade(self, lost: str, given: str) -> None:
        """
        Warn that a keyword comes back as something simpler, or refuse that.
        """
        if conf.strict_kwargs_serialization():
            raise ValueError(f"{lost}, which is not there")
        logger.warning("The stored keyword %s holds %s, which is not there; hooks get %s", self.name, lost, given)

    def load(self, stored: Any) -> None:
        """
        Load the objects that a keyword refers to, in one query for each model and database.
        """
        wanted: dict[tuple[str, str], list[Any]] = {}
        for reference in references(stored):
            wanted.setdefault(self.source(reference), []).append(self.value(reference["pk"]))
        for (label, alias), keys in wanted.items():
            known = self.loaded.setdefault((label, alias), {})
            missing = [key for key in keys if key not in known]
            # The base manager: the default one may hide archived rows.
            known.update(apps.get_model(label)._base_manager.using(alias).in_bulk(missing))

    def source(self, reference: Stored) -> tuple[str, str]:
        """
        Return the model and the database of a reference.
        """
        return reference["model"], reference["alias"] or self.alias

    def instance(self, stored: Stored) -> models.Model:
        """
        Return the loaded object a reference names.
        """
        label, alias = self.source(stored)
        key = self.value(stored["pk"])
        found = self.loaded[label, alias].get(key)
        if found is None:
            raise VanishedReference(
                f"The stored keyword {self.name} refers to {label} {key!r} on {alias!r}, which is gone."
                " Call again with objects that exist."
            )
        return found


def references(stored: Any) -> Iterator[Stored]:
    """
    Go through the references to model instances, wherever they stand.
    """
    if isinstance(stored, dict):
        if stored.get(TAG) == "model":
            yield stored
        stored = stored.values()
    elif not isinstance(stored, list):
        return
    for item in stored:
        yield from references(item)


Reader = Callable[[Decoder, Stored], Any]


def scalar_reader(read: Callable[[Any], Any]) -> Reader:
    """
    Make the reader of a type that is one text or one list of numbers.
    """
    return lambda decoder, stored: read(stored["value"])


def collection_reader(kind: Callable[[list[Any]], Any]) -> Reader:
    """
    Make the reader of a container that is one list.
    """
    return lambda decoder, stored: kind(decoder.items(stored["value"]))


READERS: dict[str, Reader] = {
    "int": scalar_reader(lambda text: int(text, 16)),
    "float": scalar_reader(float),
    "dict": Decoder.pairs,
    "ordered": lambda decoder, stored: OrderedDict(decoder.pairs(stored)),
    "datetime": lambda decoder, stored: read_moment(stored),
    "time": lambda decoder, stored: read_moment(stored),
    "enum": Decoder.member,
    "namedtuple": Decoder.named,
    "model": Decoder.instance,
    **{tag: scalar_reader(read) for tag, _, read in SCALARS.values()},
    **{tag: collection_reader(kind) for kind, tag in COLLECTIONS.items()},
}
