"""
From Python to JSON: each value finds the way it is written by its exact type, or is looked at more closely.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, time
from enum import Enum
from itertools import chain, repeat
from types import NoneType
from typing import Any, NoReturn

from django.apps import apps
from django.db import models, router
from django.db.models.manager import BaseManager
from django.utils.functional import Promise

from django_logic import conf
from django_logic.background.codec.kinds import COLLECTIONS, SCALARS, TAG, is_object, logger, path_of
from django_logic.background.codec.moments import Moment, is_kept, write_moment
from django_logic.background.codec.paths import UNPLACED, where
from django_logic.background.exceptions import KwargsSerializationError

__all__ = ["DEEPEST", "LARGEST", "Encoder"]

#: Units: bytes of JSON, as Django sends it.
LARGEST = 1_000_000
#: How many containers may stand inside each other.
DEEPEST = 64
# A keyword nested deeper than this becomes one text: MariaDB refuses documents of more than 31 levels, and a container
# takes up to two of them.
SHALLOW = 10
# Where encoding stops before the size is known: a small structure with shared parts may unfold into gigabytes.
HOPELESS = 2 * LARGEST
# A JSON number is safe up to 15 digits; above, MySQL reads a neighbour.
LONGEST_FLOAT = 16
INTEGERS = range(-(2**63), 2**63)


class Encoder:
    """
    Encode the keywords of one call, knowing at each moment which place of which keyword is at hand.
    """

    __slots__ = ("deepest", "is_strict", "label", "opened", "path", "room")

    def __init__(self, label: str, *, is_strict: bool = False) -> None:
        self.label = label
        self.is_strict = is_strict
        self.path: list[Any] = []
        self.opened: set[int] = set()
        self.deepest = 0
        self.room = HOPELESS

    def keyword(self, name: str, value: Any) -> Any:
        """
        Encode one keyword.
        """
        self.path, self.deepest = [name], 0
        if not isinstance(name, str):
            self.refuse(f"a name of type {type(name).__name__}", "Name keywords by text.")
        self.text(name)
        stored = self.value(value)
        return stored if self.deepest <= SHALLOW else {TAG: "json", "value": json.dumps(stored)}

    def weigh(self, payload: Mapping[str, Any]) -> None:
        """
        Refuse keywords that are too large together.
        """
        size = len(json.dumps(payload))
        if size > LARGEST:
            sizes = {name: len(json.dumps(stored)) for name, stored in payload.items()}
            self.path = [max(sizes, key=sizes.__getitem__)]
            self.refuse_size(f"{size:,} bytes of JSON in all, {max(sizes.values()):,} of them in this keyword")

    def value(self, value: Any) -> Any:
        """
        Encode anything.
        """
        write = WRITERS.get(type(value))
        return self.unusual(value) if write is None else write(self, value)

    def text(self, value: str) -> str:
        """
        Return text that every database can store.
        """
        self.room -= len(value)
        if "\x00" in value:
            self.refuse("text with a NUL character", "Remove it, or pass bytes.")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                self.refuse("text with a lone surrogate", "Decode it with errors='replace', or pass bytes.")
        return value

    def whole(self, value: int) -> Any:
        """
        Encode an integer; a large one as text, because a database may read it as a float.
        """
        return value if value in INTEGERS else {TAG: "int", "value": hex(value)}

    def real(self, value: float) -> Any:
        """
        Encode a float; as text where a database may give back an integer, no sign, or a neighbour.
        """
        text = repr(value)
        if text in ("nan", "inf", "-inf"):
            self.refuse(f"the float {text}", "Pass a finite number, None or a Decimal.")
        is_safe = len(text) <= LONGEST_FLOAT and "e" not in text and not value.is_integer()
        return value if is_safe else {TAG: "float", "value": text}

    def moment(self, value: Moment) -> Any:
        """
        Encode a datetime or a time.
        """
        if not is_kept(value.tzinfo):
            kind, mend = type(value.tzinfo).__name__, "Use zoneinfo.ZoneInfo or datetime.timezone."
            if value.utcoffset() is None:
                self.refuse(f"a time zone of type {kind}", mend)
            self.degrade(f"a time zone of type {kind}, which comes back as its offset", mend)
        stored = write_moment(value)
        self.text(stored.get("name", ""))
        return stored

    def walk(self, owner: Any, items: Iterable[tuple[Any, Any]]) -> list[Any]:
        """
        Encode what a container holds, each item given with the step that leads to it.
        """
        path = self.path
        if id(owner) in self.opened:
            self.refuse(f"{type(owner).__name__} that contains itself", "Pass a structure without cycles.")
        if len(path) > DEEPEST:
            self.refuse(f"more than {DEEPEST} levels of nesting", "Pass a flatter structure.")
        if self.room < 0:
            self.refuse_size(f"more than {HOPELESS:,} bytes of JSON")
        self.deepest = max(self.deepest, len(path))
        self.opened.add(id(owner))
        path.append(None)
        stored = []
        for step, item in items:
            path[-1] = step
            stored.append(self.value(item))
        path.pop()
        self.opened.discard(id(owner))
        self.room -= len(stored)
        return stored

    def mapping(self, value: Mapping[Any, Any]) -> Any:
        """
        Encode a dict: as an object where JSON keeps all of it, else as keys and values in turn.
        """
        if type(value) is dict and is_object(value):
            return dict(zip(value, self.walk(value, value.items()), strict=True))
        pairs = chain.from_iterable(((key, key), (key, item)) for key, item in value.items())
        return {TAG: "ordered" if isinstance(value, OrderedDict) else "dict", "value": self.walk(value, pairs)}

    def unusual(self, value: Any) -> Any:
        """
        Encode what no exact type says how to write.
        """
        kind = type(value)
        if isinstance(value, Enum):
            return self.member(value)
        if isinstance(value, models.Model):
            return self.reference(value)
        if isinstance(value, tuple) and hasattr(kind, "_make"):
            return self.named(value)
        if isinstance(value, models.QuerySet | BaseManager):
            self.refuse(kind.__name__, "It would read other rows later: pass list(queryset), or the keys.")
        if isinstance(value, Promise):
            self.refuse("a lazy translation", "Pass str(text), or the text before its translation.")
        base = next((base for base in kind.__mro__ if base in WRITERS), None)
        if base is None:
            self.refuse(kind.__name__, "Pass plain data, or a key by which the hook finds it.")
        self.degrade(f"{kind.__name__}, which comes back as a plain {base.__name__}", f"Pass a {base.__name__}.")
        return WRITERS[base](self, EXACT[base](value) if base in EXACT else value)

    def member(self, value: Enum) -> Any:
        """
        Encode a member of an enum by its class and name, with its plain value for a worker that has no such class.
        """
        kind, path = type(value), path_of(type(value))
        if path is None:
            self.degrade(f"a member of {kind.__name__}, which no other process can import", "Define it in a module.")
            return self.value(value.value)
        stored = {TAG: "enum", "class": path, "name": value.name}
        plain = Encoder(self.label, is_strict=True)
        plain.path = ["value"]
        with suppress(KwargsSerializationError):
            stored["value"] = plain.value(value.value)
            self.deepest = max(self.deepest, len(self.path) + plain.deepest)
        return stored

    def named(self, value: Any) -> Any:
        """
        Encode a namedtuple by its class and fields.
        """
        kind: Any = type(value)
        path = path_of(kind)
        if path is None:
            self.degrade(f"{kind.__name__}, which no other process can import", "Define it in a module.")
            return self.value(tuple(value))
        items = self.walk(value, zip(kind._fields, value, strict=True))
        return {TAG: "namedtuple", "class": path, "fields": list(kind._fields), "value": items}

    def reference(self, instance: models.Model) -> Any:
        """
        Encode a saved object by its model, its key and the database it is written to.
        """
        # A lazy object, like request.user, has a class of its own.
        model, pk = instance.__class__, instance.pk
        label = model._meta.label
        if instance._state.adding or pk is None:
            self.refuse(f"an unsaved {label}", "Save it first, or pass its values.")
        if instance.get_deferred_fields():
            self.refuse(f"{label} loaded in part", "Load it without only() and defer(), or pass its key.")
        if apps.all_models[model._meta.app_label].get(str(model._meta.model_name)) is not model:
            self.refuse(f"an object of another {label} than the installed one", "Pass its key.")
        # A key that was assigned as text may be spelt otherwise than the one that is loaded.
        pk = model._meta.pk.to_python(pk) if isinstance(pk, str) else pk
        alias = router.db_for_write(model, instance=instance) if instance._state.db else None
        return {TAG: "model", "model": label, "pk": self.value(pk), "alias": alias}

    def degrade(self, found: str, mend: str) -> None:
        """
        Warn that a value comes back as something simpler, or refuse it.
        """
        if self.is_strict or conf.strict_kwargs_serialization():
            self.refuse(found, mend)
        logger.warning("%s is not stored as it is; found %s. %s", self.place, found, mend)

    def refuse(self, found: str, mend: str) -> NoReturn:
        """
        Refuse what is at hand.
        """
        raise KwargsSerializationError(
            f"{self.place} can't be stored for a worker; found {found}. {mend}", where(self.path)
        )

    def refuse_size(self, found: str) -> NoReturn:
        """
        Refuse what is too large.
        """
        self.refuse(found, f"At most {LARGEST:,} fit: keep the data in a row or a file, and pass its key.")

    @property
    def place(self) -> str:
        """
        Return how messages name what is at hand.
        """
        return f"{self.label}: keyword {where(self.path)}" if self.label else f"Keyword {where(self.path)}"


Writer = Callable[[Encoder, Any], Any]


def scalar_writer(tag: str, write: Callable[[Any], Any]) -> Writer:
    """
    Make the writer of a type that is one text or one list of numbers.
    """
    return lambda encoder, value: {TAG: tag, "value": write(value)}


def collection_writer(tag: str, steps: Callable[[Any], Iterable[tuple[Any, Any]]]) -> Writer:
    """
    Make the writer of a container that is one list.
    """
    return lambda encoder, value: {TAG: tag, "value": encoder.walk(value, steps(value))}


def unplaced(value: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    """
    Give the elements of a set, which have no place.
    """
    return zip(repeat(UNPLACED), value, strict=False)


WRITERS: dict[type, Writer] = {
    str: Encoder.text,
    int: Encoder.whole,
    bool: lambda encoder, value: value,
    NoneType: lambda encoder, value: value,
    float: Encoder.real,
    list: lambda encoder, value: encoder.walk(value, enumerate(value)),
    dict: Encoder.mapping,
    OrderedDict: Encoder.mapping,
    datetime: Encoder.moment,
    time: Encoder.moment,
    **{kind: scalar_writer(tag, write) for kind, (tag, write, _) in SCALARS.items()},
    **{kind: collection_writer(tag, enumerate if kind is tuple else unplaced) for kind, tag in COLLECTIONS.items()},
}
# How to strip a subclass off a value that is written by itself rather than by its parts.
EXACT: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int.__int__, float: float.__float__, dict: dict}
