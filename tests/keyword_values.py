"""
Values a caller may pass to a worker: classes to be found again by their path, and strategies that nest everything.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from datetime import datetime, time, timedelta, timezone
from typing import Any, NamedTuple

from django.utils.safestring import mark_safe
from hypothesis import strategies as st

from tests.app.models import Grade, Status


class Line(NamedTuple):
    """
    A line of an order.
    """

    sku: str
    price: Any


class Planet(enum.Enum):
    """
    An enum whose values are no plain data on their own.
    """

    EARTH = (5.976e24, 6.37814e6)
    MARS = object()


class Plain(enum.Enum):
    """
    An enum with values that look like those of others.
    """

    DRAFT = "draft"
    ALSO = "draft"
    NONE = None


class Access(enum.Flag):
    """
    Flags, whose combinations have no names.
    """

    READ = enum.auto()
    WRITE = enum.auto()
    OWN = READ | WRITE
    SHARE = enum.auto()


class Wording(enum.Enum):
    """
    An enum whose value would lose its class, and one whose value is nested by itself.
    """

    BOLD = mark_safe("<b>")
    TREE = (((((((((("leaf",),),),),),),),),),)


MEMBERS = [*Status, *Grade, *Planet, *Plain, *Access, *Wording, Access.READ | Access.SHARE, Access(0)]


def told(value: Any) -> Any:
    """
    Describe a value so that two descriptions are equal only if value, type, order and zone are, at any depth.
    """
    kind = type(value)
    if isinstance(value, dict):
        return kind, [(told(key), told(item)) for key, item in value.items()]
    if kind is int:
        return kind, hex(value)
    if isinstance(value, enum.Enum) or not isinstance(value, (list, tuple, set, frozenset)):
        return kind, repr(value)
    items = [told(item) for item in value]
    return kind, sorted(items, key=repr) if isinstance(value, (set, frozenset)) else items


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
OFFSETS = st.timedeltas(timedelta(hours=-23), timedelta(hours=23))
ZONES = st.one_of(st.none(), st.timezones(), st.builds(timezone, OFFSETS), st.builds(timezone, OFFSETS, TEXT))

#: Anything that may be a key or an element of a set.
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
    st.sampled_from(["$type", "value", "", "uuid", "lines"]),
    st.binary(max_size=8),
    st.uuids(),
    st.decimals(allow_nan=False),
    st.dates(),
    st.timedeltas(),
    st.datetimes(timezones=ZONES),
    st.builds(time.replace, st.times(), tzinfo=ZONES, fold=st.integers(0, 1)),
    st.builds(datetime.replace, st.datetimes(), fold=st.integers(0, 1)),
    st.sampled_from(MEMBERS),
)
HASHABLE: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3), st.builds(Line, TEXT, inner)
    ),
    max_leaves=4,
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.one_of(LEAVES, st.decimals(allow_nan=True)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(HASHABLE, max_size=3),
        st.dictionaries(st.one_of(TEXT, st.sampled_from(["$type", "value"])), inner, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.dictionaries(TEXT, inner, max_size=3).map(OrderedDict),
        st.builds(Line, TEXT, inner),
    ),
    max_leaves=12,
)
KEYWORDS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.one_of(st.sampled_from(["lines", "note", "$type"]), TEXT), ANYTHING, max_size=4
)
