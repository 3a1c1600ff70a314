"""
Prove that keywords come back from JSON as they were, and that what can't is refused by its place.
"""

from __future__ import annotations

import enum
import json
import logging
import sys
from collections import Counter, OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.http import HttpRequest, QueryDict
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import given, settings

from django_logic.background.codec import DEEPEST, LARGEST, decode, encode
from django_logic.background.exceptions import KwargsSerializationError
from tests.app.models import Grade, Order, Status, Ticket
from tests.keyword_values import KEYWORDS, MEMBERS, Line, told

BERLIN = ZoneInfo("Europe/Berlin")
NAIVE = datetime.fromisoformat("2025-01-01T12:00")
STRICT = {"STRICT_KWARGS_SERIALIZATION": True}


def returned(value: Any) -> Any:
    """
    Send one keyword through JSON text and back.
    """
    return sent({"it": value})["it"]


def sent(keywords: dict[str, Any]) -> dict[str, Any]:
    """
    Send keywords through JSON text and back.
    """
    return decode(json.loads(json.dumps(encode(keywords), allow_nan=False)), "default")


def nested(value: Any, levels: int, wrap: Any = lambda inner: [inner]) -> Any:
    """
    Put containers around a value.
    """
    for _ in range(levels):
        value = wrap(value)
    return value


def refusal(**keywords: Any) -> KwargsSerializationError:
    """
    Encode keywords that are refused.
    """
    with pytest.raises(KwargsSerializationError) as caught:
        encode(keywords, "fulfil")
    return caught.value


@pytest.fixture
def flow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """
    Give a module that can be written, imported, changed and lost.
    """

    def write(text: str | None) -> Any:
        sys.modules.pop("dl_flow_module", None)
        file = tmp_path / "dl_flow_module.py"
        if text is None:
            return file.unlink()
        file.write_text(text)
        with suppress(ImportError):
            return import_module("dl_flow_module")

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield write
    sys.modules.pop("dl_flow_module", None)


@settings(max_examples=300, deadline=None)
@given(keywords=KEYWORDS)
def test_any_structure_comes_back_as_it_was(keywords: dict[str, Any]) -> None:
    """
    Names, values, types, zones and the order of dicts survive JSON, at any depth and in any combination.
    """
    back = sent(keywords)

    assert told(back) == told(keywords)


@pytest.mark.parametrize(
    "value",
    [
        *("", "text", "é😀\u2028", "$type", 0, -1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**5000),
        *(True, False, None, 0.0, -0.0, 1.0, 0.1, 0.1 + 0.2, 1e16, 1e308, 5e-324, 1.5e-30, -123456.789),
        *(Decimal("1.10"), Decimal("-0"), Decimal("NaN"), Decimal("-sNaN12"), Decimal("Infinity"), Decimal("1E+999")),
        *(b"", b"\x00\xff", UUID(int=1), date(1, 1, 1), timedelta.min, timedelta(days=-1, microseconds=1)),
        *(NAIVE, NAIVE.replace(fold=1), datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=BERLIN)),
        *(datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN), datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=1)),
        *(datetime(2025, 3, 30, 2, 30, tzinfo=BERLIN), datetime(2025, 1, 1, tzinfo=ZoneInfo("UTC"))),
        datetime(2025, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30, seconds=7))),
        datetime(2025, 1, 1, tzinfo=timezone(timedelta(microseconds=-1))),
        datetime(2025, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET")),
        datetime(2025, 1, 1, tzinfo=timezone(timedelta(), "Zulu")),
        *(time(23, 59, 59, 999999), time(1, fold=1), time(1, tzinfo=BERLIN), time(1, tzinfo=UTC)),
        *([], (), set(), frozenset(), {}, [[]], ((),), {"a": {}}, {frozenset({(1, "a")}): {1: [2]}}),
        *({"$type": "uuid"}, {"$type": "uuid", "value": "x"}, {"b": 1, "a": 2}, {"bb": 1, "c": 2}, {"é": 1, "a": 2}),
        *({1: "a", "1": "b", None: "c"}, {True: 0}, {"a": {"$type": {"$type": 1}}}),
        *(OrderedDict(b=1, a=2), OrderedDict(), Line("a", Decimal("1.5")), Line("a", Line("b", None))),
        *MEMBERS,
        {Status.DRAFT: {Grade.GOLD}},
    ],
    ids=lambda value: (
        f"{type(value).__name__} {str(value)[:30]}" if not isinstance(value, int) else type(value).__name__
    ),
)
@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: [({"k": it},)]], ids=["alone", "deep"])
def test_each_type_comes_back_as_itself(value: Any, wrap: Any) -> None:
    """
    What the reference lists comes back with value and type, alone and inside other containers.
    """
    back = returned(wrap(value))

    assert told(back) == told(wrap(value))


@pytest.mark.parametrize("member", MEMBERS)
def test_member_of_an_enum_is_the_same_member(member: enum.Enum) -> None:
    """
    A member comes back as itself, not as an equal value: text, integer, flag and object enums alike.
    """
    assert returned(member) is member


def test_flat_plain_keywords_are_stored_as_they_are() -> None:
    """
    What JSON has words for is readable in the row.
    """
    keywords = {"order_id": 5, "note": "é", "urgent": True, "rate": 0.25, "lines": [{"id": 1, "sku": "a"}], "no": None}

    assert encode(keywords) == keywords


@pytest.mark.parametrize("number", [1.0, -0.0, 1e16, 1e-5, 0.1 + 0.2, 123456789.12345678])
def test_number_that_a_database_may_change_is_stored_as_text(number: float) -> None:
    """
    Whole floats, exponents and more than 15 digits do not depend on how a database reads JSON numbers.
    """
    assert encode({"it": number}) == {"it": {"$type": "float", "value": repr(number)}}


@pytest.mark.parametrize(
    ("value", "path", "found"),
    [
        (float("nan"), "lines", "the float nan"),
        ([1, float("inf")], "lines[1]", "the float inf"),
        ({"rate": (-float("inf"),)}, "lines['rate'][0]", "the float -inf"),
        ([{}, {}, {"price": "a\0b"}], "lines[2]['price']", "text with a NUL character"),
        ({"a\0b": 1}, r"lines['a\x00b']", "text with a NUL character"),
        ({"a": {"\ud800": 1}}, r"lines['a']['\ud800']", "text with a lone surrogate"),
        ([["\udfff"]], "lines[0][0]", "text with a lone surrogate"),
        ({"it": {"\0"}}, "lines['it'][…]", "text with a NUL character"),
        ({2: [range(3)]}, "lines[2][0]", "range"),
        ({(1, "\0"): 1}, "lines[<tuple>][1]", "text with a NUL character"),
        (Line("a", 1j), "lines['price']", "complex"),
        ({float("inf"): 1}, "lines[<float>]", "the float inf"),
        ({10**5000: object()}, "lines[<int>]", "object"),
        ({"k" * 500: object()}, f"lines['{'k' * 99}]", "object"),
        (datetime(2025, 1, 1, tzinfo=timezone(timedelta(0), "\0")), "lines", "text with a NUL character"),
        (HttpRequest(), "lines", "HttpRequest"),
        (bytearray(b"x"), "lines", "bytearray"),
        ((number for number in [1]), "lines", "generator"),
        (Ticket, "lines", "ModelBase"),
        (gettext_lazy("Draft"), "lines", "a lazy translation"),
        (SimpleLazyObject(lambda: "text"), "lines", "SimpleLazyObject"),
        (Order.objects.all(), "lines", "QuerySet"),
        (Order.objects, "lines", "Manager"),
        (Ticket(), "lines", "an unsaved app.Ticket"),
        (Ticket(pk=5), "lines", "an unsaved app.Ticket"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_its_place(value: Any, path: str, found: str) -> None:
    """
    The refusal says which call, which place inside the structure, what was found there, and what to do.
    """
    refused = refusal(fine=1, lines=value)

    assert refused.path == path
    assert str(refused).startswith(f"fulfil: keyword {path} can't be stored for a worker; found {found}")
    assert str(refused).endswith(".")


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_name_that_cannot_be_stored_is_refused(name: str) -> None:
    """
    Names of keywords are text like any other.
    """
    assert refusal(**{name: 1}).path == repr(name)


def test_refusal_without_a_label_names_the_keyword() -> None:
    """
    The label is optional.
    """
    with pytest.raises(KwargsSerializationError, match=r"^Keyword it can't be stored"):
        encode({"it": object()})


def test_key_is_named_without_running_its_code() -> None:
    """
    A place is told without the text of objects, which may read the database or hold secrets.
    """

    class Secret(str):
        def __repr__(self) -> str:
            raise AssertionError("was asked")

    key = Secret("token")

    assert refusal(lines={key: object()}).path == "lines[<Secret>]"


def test_cycles_are_refused() -> None:
    """
    A structure that contains itself is named as such, whatever containers the circle goes through.
    """
    ring: list[Any] = []
    ring.append({"a": (ring,)})

    refused = refusal(lines=ring)

    assert refused.path == "lines[0]['a'][0]"
    assert "found list that contains itself" in str(refused)


def test_part_that_is_held_twice_is_no_cycle() -> None:
    """
    Shared parts are stored as often as they appear.
    """
    part = {"a": 1}

    assert returned([part, part, [part]]) == [part, part, [part]]


@pytest.mark.parametrize("wrap", [lambda it: [it], lambda it: (it,), lambda it: {1: it}, lambda it: Line("a", it)])
def test_nesting_is_kept_up_to_a_limit(wrap: Any) -> None:
    """
    The deepest structure comes back as it was; one level more is refused.
    """
    deepest = nested(UUID(int=1), DEEPEST, wrap)

    assert told(returned(deepest)) == told(deepest)
    assert f"more than {DEEPEST} levels" in str(refusal(lines=wrap(deepest)))


def test_nesting_far_beyond_the_limit_is_refused_alike() -> None:
    """
    A structure deeper than Python's stack is a refusal, not a RecursionError.
    """
    assert "levels of nesting" in str(refusal(lines=nested(1, 100_000)))


def test_small_structure_that_unfolds_into_a_giant_is_refused() -> None:
    """
    Shared parts that double at each level are stopped before they fill the memory.
    """
    refused = refusal(lines=nested([1], 50, lambda inner: [inner, inner]))

    assert "bytes of JSON" in str(refused)


def test_size_is_limited_in_bytes_of_json() -> None:
    """
    Exactly LARGEST bytes are stored; one more is refused with the size found and the keyword that has most of it.
    """
    frame = len(json.dumps({"body": "", "note": "x"}))
    fitting = {"body": "a" * (LARGEST - frame), "note": "x"}

    stored = encode(fitting)
    refused = refusal(**{**fitting, "note": "xy"})

    assert len(json.dumps(stored)) == LARGEST
    assert refused.path == "body"
    assert f"{LARGEST + 1:,} bytes of JSON in all" in str(refused)
    assert f"At most {LARGEST:,} fit" in str(refused)


class Zone(tzinfo):
    """
    A zone of somebody else's library.
    """

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """
        Tell the offset, which a time without a date does not have.
        """
        return timedelta(hours=2) if moment else None


def local_classes() -> tuple[Any, Any]:
    """
    Make classes that no other process can import.
    """

    class Local(enum.Enum):
        A = "a"

    return Local, namedtuple("Row", "a b")


LOCAL, ROW = local_classes()
SIMPLER = [
    (mark_safe("<b>"), "<b>"),
    (type("Number", (int,), {})(5), 5),
    (type("Ratio", (float,), {})(0.5), 0.5),
    (type("Moment", (datetime,), {}).fromisoformat(NAIVE.isoformat()), NAIVE),
    (type("Pair", (tuple,), {})([1, 2]), (1, 2)),
    (type("Lines", (list,), {})([1]), [1]),
    (defaultdict(list, {"b": [1], "a": [2]}), {"b": [1], "a": [2]}),
    (Counter("ab"), {"a": 1, "b": 1}),
    (QueryDict("a=1&a=2"), {"a": ["1", "2"]}),
    (LOCAL.A, "a"),
    (ROW(1, LOCAL.A), (1, "a")),
    (NAIVE.replace(tzinfo=Zone()), NAIVE.replace(tzinfo=timezone(timedelta(hours=2)))),
]


@pytest.mark.parametrize(("value", "simpler"), SIMPLER, ids=[type(value).__name__ for value, _ in SIMPLER])
def test_subclass_comes_back_plain_with_a_warning(value: Any, simpler: Any, caplog: pytest.LogCaptureFixture) -> None:
    """
    What would lose its class says so when it is stored, by its place; a safe text never loses its mark silently.
    """
    caplog.set_level(logging.WARNING, "django-logic.transition")

    stored = encode({"lines": [value]}, "fulfil")

    assert told(decode(json.loads(json.dumps(stored)), "default")["lines"]) == told([simpler])
    assert told(decode(stored, "default")["lines"]) == told([simpler])
    assert "fulfil: keyword lines[0]" in caplog.text
    assert type(value).__name__ in caplog.text or "time zone of type Zone" in caplog.text


@pytest.mark.parametrize(("value", "simpler"), SIMPLER, ids=[type(value).__name__ for value, _ in SIMPLER])
def test_subclass_is_refused_when_strict(value: Any, simpler: Any, settings: Any) -> None:
    """
    With STRICT_KWARGS_SERIALIZATION nothing is stored that would come back as something else.
    """
    settings.DJANGO_LOGIC = STRICT

    assert refusal(lines=[value]).path.startswith("lines[0]")


def test_zone_without_an_offset_is_refused() -> None:
    """
    A time whose zone can't be told at all has nothing to come back as.
    """
    assert "a time zone of type Zone" in str(refusal(at=time(1, tzinfo=Zone())))


def test_faithful_values_pass_when_strict(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    """
    What comes back as it was is neither refused nor warned about, values of enums that are only kept included.
    """
    settings.DJANGO_LOGIC = STRICT
    keywords = {"members": MEMBERS, "line": Line("a", Decimal(1)), "at": datetime(2025, 1, 1, tzinfo=BERLIN)}

    back = sent(keywords)

    assert told(back) == told(keywords)
    assert caplog.text == ""


def test_faithful_values_are_not_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """
    A member comes back as itself, so that nobody is bothered with what its value would come back as.
    """
    encode({"members": MEMBERS})

    assert caplog.text == ""


def test_class_of_the_program_started_is_plain_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A script's own classes can be imported by that script only: a worker is another program.
    """
    script = enum.Enum("Script", {"A": "a"}, module="__main__")
    monkeypatch.setattr(sys.modules["__main__"], "Script", script, raising=False)

    assert returned(script["A"]) == "a"
    assert "a member of Script, which no other process can import" in caplog.text


FLOW = """
import enum, typing
class Size(enum.Enum):
    SMALL = "s"
    PAIR = (1, "p")
    ODD = object()
class Parcel(typing.NamedTuple):
    size: str
    weight: int
"""


def test_class_is_imported_where_it_is_not_yet(flow_module: Any) -> None:
    """
    A worker that has never imported the class finds it by its path.
    """
    flow = flow_module(FLOW)
    stored = encode({"size": flow.Size.SMALL, "parcel": flow.Parcel("s", 5)})
    sys.modules.pop("dl_flow_module")

    back = decode(stored, "default")

    found = sys.modules["dl_flow_module"]
    assert back["size"] is found.Size.SMALL
    assert told(back["parcel"]) == told(found.Parcel("s", 5))


@pytest.mark.parametrize(
    "later", [None, "", "import no_such_module", "Size = Parcel = 5", "class Size: pass\nParcel = Size"]
)
def test_class_that_is_gone_leaves_the_plain_value(
    later: str | None, flow_module: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Hooks get the value of the member and a plain tuple, and the log says what was lost from which keyword.
    """
    flow = flow_module(FLOW)
    stored = encode({"size": [flow.Size.SMALL, flow.Size.PAIR], "parcel": flow.Parcel("s", 5)})
    flow_module(later)

    back = decode(stored, "default")

    assert told(back) == told({"size": ["s", (1, "p")], "parcel": ("s", 5)})
    assert "keyword size holds the enum member dl_flow_module:Size.SMALL, which is not there" in caplog.text
    assert "keyword parcel holds the namedtuple dl_flow_module:Parcel" in caplog.text


def test_class_that_is_gone_is_an_error_when_strict(flow_module: Any, settings: Any) -> None:
    """
    With STRICT_KWARGS_SERIALIZATION a worker without the class fails the attempt instead of guessing.
    """
    flow = flow_module(FLOW)
    stored = [encode({"it": flow.Size.SMALL}), encode({"it": flow.Parcel("s", 5)})]
    flow_module("")
    settings.DJANGO_LOGIC = STRICT

    for payload in stored:
        with pytest.raises(ValueError, match=r"The stored keyword it can't be read.*not there"):
            decode(payload, "default")


def test_member_without_plain_value_is_an_error_when_its_class_is_gone(flow_module: Any) -> None:
    """
    A member whose value is no data comes back by its name or not at all.
    """
    stored = encode({"it": flow_module(FLOW).Size.ODD})
    flow_module("")

    with pytest.raises(ValueError, match="The stored keyword it can't be read"):
        decode(stored, "default")


def test_member_and_fields_are_found_by_name_when_the_class_has_changed(
    flow_module: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A member keeps its name although its value has changed, a namedtuple its fields although there are more of them.
    """
    flow = flow_module(FLOW)
    stored = encode({"size": flow.Size.SMALL, "parcel": flow.Parcel("s", 5)})
    now = flow_module(
        FLOW.replace('"s"', '"small"').replace("size: str", "").replace("int", "int\n    size: str\n    to: str = ''")
    )

    back = decode(stored, "default")

    assert back["size"] is now.Size.SMALL
    assert told(back["parcel"]) == told(now.Parcel(weight=5, size="s", to=""))
    assert caplog.text == ""


def test_namedtuple_without_its_fields_comes_back_plain(flow_module: Any, caplog: pytest.LogCaptureFixture) -> None:
    """
    A class that no longer takes what was stored counts as gone.
    """
    stored = encode({"parcel": flow_module(FLOW).Parcel("s", 5)})
    flow_module(FLOW.replace("weight", "mass"))

    back = decode(stored, "default")

    assert told(back) == told({"parcel": ("s", 5)})
    assert "keyword parcel holds" in caplog.text


def test_combination_of_flags_that_no_longer_exist_comes_back_plain(
    flow_module: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Flags are restored by their bits, and bits without a flag leave the number.
    """
    text = "import enum\nclass May(enum.Flag):\n    READ = 1\n    WRITE = 2\n"
    stored = encode({"it": flow_module(text).May(3)})
    flow_module(text.replace("WRITE = 2", ""))

    assert decode(stored, "default") == {"it": 3}
    assert "keyword it holds" in caplog.text


@pytest.mark.parametrize(
    "stored",
    [
        {"$type": "no such type", "value": 1},
        {"$type": None},
        {"$type": ["uuid"]},
        {"$type": "uuid"},
        {"$type": "uuid", "value": "x"},
        {"$type": "uuid", "value": 5},
        {"$type": "decimal", "value": "one"},
        {"$type": "int", "value": "one"},
        {"$type": "bytes", "value": "*"},
        {"$type": "timedelta", "value": [10**20]},
        {"$type": "date", "value": "yesterday"},
        {"$type": "datetime", "value": "2025-01-01", "zone": "Nowhere/Atall"},
        {"$type": "set", "value": [[1]]},
        {"$type": "dict", "value": [[], 1]},
        {"$type": "dict", "value": [1]},
        {"$type": "dict", "value": [1, 2, 1, 3]},
        {"$type": "enum", "class": 5, "name": "A", "value": 1},
        {"$type": "model", "model": "app.NoSuchModel", "pk": 1, "alias": None},
        {"$type": "model", "model": "app.Ticket", "pk": 1, "alias": "no such database"},
        {"$type": "model", "model": "app.Ticket"},
        {"$type": "json", "value": "{"},
        nested({"$type": "nested too deep, and unknown"}, 5000),
    ],
    ids=lambda stored: str(stored)[:60] if isinstance(stored, dict) else "deep",
)
@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: {"a": [it]}], ids=["alone", "deep"])
def test_damaged_keyword_is_a_value_error_that_names_it(stored: Any, wrap: Any) -> None:
    """
    What can't be read is one clear error, which counts as a failed attempt.
    """
    with pytest.raises(ValueError, match="The stored keyword it can't be read; found") as caught:
        decode({"fine": 1, "it": wrap(stored)}, "default")

    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("payload", [None, [], "text", 5])
def test_damaged_payload_is_a_value_error(payload: Any) -> None:
    """
    Stored keywords that are no object at all are an error of the same kind.
    """
    with pytest.raises(ValueError, match="The stored keywords can't be read"):
        decode(payload, "default")
