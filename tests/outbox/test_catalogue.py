"""
Prove that the catalogue holds what is really written: every topic, every way to it, every payload, and nothing else.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, NotRequired, TypedDict
from uuid import UUID

import pytest
from django.db import models
from hypothesis import given, settings
from hypothesis import strategies as some
from jsonschema import Draft7Validator

from django_logic import Action, Process, Transition
from django_logic.background import BackgroundAction, BackgroundTransition
from django_logic.machines import machines
from django_logic.outbox import PayloadRefused, payload
from django_logic.outbox.catalogue import Entry, Shape, catalogue, json_schema, payload_schema
from django_logic.outbox.models import OutboxMessage
from tests.app.models import Child, Grade, Level, Loose, Parcel, Sale, SlugDocument, Status, Ticket, UuidDocument
from tests.app.process import DocumentProcess, LevelProcess, ParcelProcess, PaymentProcess
from tests.flows import Bind, declare
from tests.outbox.driving import Told, drive, told_by, work

if TYPE_CHECKING:
    from collections.abc import Nowhere  # type: ignore[attr-defined]

FORMATS = Draft7Validator.FORMAT_CHECKER


class Line(TypedDict):
    """
    One line of a receipt.
    """

    name: str
    price: Decimal


class Receipt(TypedDict, total=False):
    """
    What one builder tells: keys that may be absent, and nested ones.
    """

    action: str
    lines: list[Line]
    at: datetime
    note: NotRequired[str | None]
    colour: Literal["red", "blue"]


class Told2(Receipt):
    """
    The second version: everything else is always there.
    """

    sequence: int | None
    total: Decimal


@dataclass
class Stamp:
    """
    A nested dataclass.
    """

    at: date
    by: str = "clerk"


@dataclass
class Stamped:
    """
    What another builder tells.
    """

    action: str
    stamps: list[Stamp]
    sequence: int


@payload(topic="ticket.receipt", schema="https://schemas.example.com/receipt/2")
def receipt(ticket: Nowhere, payload: dict[str, Any], **_keywords: Any) -> Told2 | None:
    """
    Build a TypedDict; its parameters are annotated with what only type checkers see.
    """
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    lines: list[Line] = [{"name": "toner", "price": Decimal("9.90")}]
    return {**payload, "lines": lines, "at": moment, "total": Decimal("9.90")}  # type: ignore[typeddict-item]


def stamped(ticket: Ticket, payload: dict[str, Any], **_keywords: Any) -> Stamped:
    """
    Build a dataclass.
    """
    return Stamped(action=payload["action"], stamps=[Stamp(date(2026, 1, 1))], sequence=payload["sequence"])


def anything(ticket: Ticket, payload: dict[str, Any], **_keywords: Any):  # type: ignore[no-untyped-def]
    """
    Build what nobody describes.
    """
    return {**payload, "more": [1, "two"]}


def own(process_class: type[Process]) -> list[Entry]:
    """
    Return the catalogue of one process.
    """
    return catalogue([machine for machine in machines() if process_class in machine.process_classes])


def ways_of(entries: list[Entry]) -> set[Told]:
    """
    Return every way to every topic.
    """
    return {
        Told(entry.topic, one.aggregate, one.action, start, start if one.kind == "action" else one.end)
        for entry in entries
        for one in entry.emitters
        for start in one.starts
    }


def shapes_of(entries: list[Entry], message: OutboxMessage) -> list[Shape]:
    """
    Return the shapes that the catalogue knows for a message.
    """
    return [
        shape
        for entry in entries
        if entry.topic == message.topic
        for shape in entry.shapes
        if (shape.aggregate, shape.schema) == (message.aggregate, message.schema)
    ]


def fits(shape: Shape, body: dict[str, Any]) -> bool:
    """
    Tell whether a payload is as its shape says, without a field the shape leaves out where it names any.
    """
    known = shape.payload.get("properties")
    is_closed = shape.builder == ""
    return Draft7Validator(shape.payload, format_checker=FORMATS).is_valid(body) and (
        not is_closed or set(body) == set(known or ())
    )


def assert_told(entries: list[Entry], messages: list[OutboxMessage]) -> None:
    """
    Assert that the catalogue knows every message, its topic and payload.
    """
    for message in messages:
        known = shapes_of(entries, message)
        assert any(fits(shape, message.payload) for shape in known), (message.topic, message.payload, known)


class Parts(Process):
    """
    A nested process.
    """

    transitions = [Transition("glue", sources=["shut"], target="glued", event="parts.glued")]


SYNC = declare(
    Transition("open", ["new"], "opened", side_effects=[work], failed_state="jammed", event="tickets.opened"),
    Transition("again", ["jammed"], "opened", side_effects=[work], failed_state="jammed"),
    Transition("shut", "*", "shut"),
    Transition("hide", ["shut"], "hidden", side_effects=[work], failed_state="jammed", event=False),
    Transition("stay", ["new"], "new"),
    Action("ping", ["new", "opened"]),
    Action("pong", ["new", "opened"], event=True),
    Action("tell", "*", event="tickets.opened", side_effects=[work], failed_state="jammed"),
    nested_processes=[Parts],
)
WORK = {"side_effects": [work], "max_errors": 1}
BACKGROUND = declare(
    BackgroundTransition(
        "print", ["new", "jam"], "printed", in_progress_state="busy", failed_state="jam", event="p.done", **WORK
    ),
    BackgroundTransition("post", ["printed", "lost"], "posted", failed_state="lost", **WORK),
    BackgroundTransition("burn", ["new"], "burnt", in_progress_state="burning", event=False, **WORK),
    BackgroundAction("count", ["new"], event=True, failed_state="lost", **WORK),
    BackgroundAction("weigh", ["new"], **WORK),
)
BUILT = declare(
    Transition("open", ["new"], "opened", event=receipt),
    Transition("shut", ["new"], "shut", event=anything),
    Transition("burn", ["opened"], "shut"),
    Action("weigh", ["new"], event=partial(anything)),
)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("model", "process_class"),
    [
        (Ticket, SYNC),
        (Ticket, BACKGROUND),
        (Level, declare(*LevelProcess.transitions)),
        (UuidDocument, declare(*DocumentProcess.transitions)),
        (SlugDocument, declare(*DocumentProcess.transitions)),
        (Child, declare(*DocumentProcess.transitions)),
        (Loose, declare(Transition("start", [None], "new"), Transition("drop", ["new"], None))),
    ],
    ids=lambda value: value.__name__,
)
def test_catalogue_holds_exactly_what_is_written(bind: Bind, model: Any, process_class: type[Process]) -> None:
    """
    Driven from every state, alone and in bulk, to success and to failure, a process emits all its catalogue says, with
    payloads as it says, and nothing else.
    """
    bind(process_class, model)
    entries = own(process_class)

    messages = drive(model, process_class)

    assert ways_of(entries) == set(map(told_by, messages))
    assert_told(entries, messages)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("model", "field", "process_classes"),
    [
        (Sale, "status", [Sale.__dict__["process"].process_class]),
        (Parcel, "parcel_status", [ParcelProcess]),
        (Parcel, "payment_status", [PaymentProcess]),
    ],
)
def test_catalogue_knows_tables_and_several_machines(model: Any, field: str, process_classes: list[Any]) -> None:
    """
    The edges of a table and the machines of a model with several are told like any process.
    """
    (process_class,) = process_classes
    entries = own(process_class)

    messages = drive(model, process_class, field)

    assert ways_of(entries) == set(map(told_by, messages))
    assert_told(entries, messages)


@pytest.mark.django_db(transaction=True)
def test_built_payloads_are_as_their_builders_say(bind: Bind) -> None:
    """
    What builders return is written as the schema of their annotation says, under the topic and schema they are given.
    """
    bind(BUILT)
    entries = own(BUILT)

    messages = drive(Ticket, BUILT)

    assert [entry.topic for entry in entries] == ["ticket.receipt", "ticket.shut", "ticket.weigh"]
    assert_told(entries, messages)
    assert {message.topic for message in messages} == {entry.topic for entry in entries}
    (shape,) = entries[0].shapes
    assert shape.schema == "https://schemas.example.com/receipt/2"
    assert shape.builder == f"{__name__}.receipt"
    assert sorted(shape.payload["required"]) == ["sequence", "total"]
    assert [("", True), (f"{__name__}.anything", True)] == sorted(
        (one.builder, one.is_numbered) for one in entries[1].shapes
    )


@pytest.mark.django_db(transaction=True)
def test_dataclasses_are_written_as_objects(bind: Bind, ticket: Ticket) -> None:
    """
    A builder may return a dataclass with others in it; it is written as its schema says.
    """
    process_class = bind(declare(Transition("open", ["new"], "opened", event=stamped)))

    ticket.flow.open()

    message = OutboxMessage.objects.get()
    assert message.payload == {"action": "open", "stamps": [{"at": "2026-01-01", "by": "clerk"}], "sequence": 1}
    assert_told(own(process_class), [message])
    ((shape,),) = (entry.shapes for entry in own(process_class))
    assert shape.payload["required"] == ["action", "stamps", "sequence"]


@pytest.mark.django_db(transaction=True)
def test_payload_that_holds_itself_refuses_the_move(bind: Bind, ticket: Ticket) -> None:
    """
    A payload without an end fails the call by a refusal of ours.
    """
    endless: dict[str, Any] = {}
    endless["again"] = endless
    bind(declare(Transition("open", ["new"], "opened", event=lambda ticket, **_keywords: endless)))

    with pytest.raises(PayloadRefused, match="no JSON"):
        ticket.flow.open()

    assert OutboxMessage.objects.count() == 0


def test_one_topic_of_several_declarations_is_one_entry(bind: Bind) -> None:
    """
    Declarations that emit the same topic share an entry, which names each of them and its own payload.
    """
    process_class = bind(
        declare(
            Transition("open", ["new"], "opened", event="seen"),
            Transition("reopen", ["shut"], "opened", event="seen"),
            Action("look", ["opened"], event="seen"),
        )
    )

    (entry,) = own(process_class)

    assert entry.topic == "seen"
    assert [emitter.action for emitter in entry.emitters] == ["look", "open", "reopen"]
    assert {"tests.flows.FlowProcess"} == {emitter.process for emitter in entry.emitters}
    assert sorted((shape.is_numbered for shape in entry.shapes), reverse=True) == [True, False]
    numbered = next(shape for shape in entry.shapes if shape.is_numbered)
    assert numbered.payload["properties"]["from"] == {"enum": ["new", "shut"]}
    assert numbered.payload["properties"]["action"] == {"enum": ["open", "reopen"]}


class Tree(TypedDict):
    """
    A type that holds itself.
    """

    children: list[Tree]


class Plain(Enum):
    """
    An enum that Django's encoder refuses.
    """

    ONE = object()


Euros = NewType("Euros", Decimal)
TEXT, NUMBER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, TEXT),
        (int, NUMBER),
        (bool, {"type": "boolean"}),
        (float, {"type": "number"}),
        (None, NULL),
        (Any, {}),
        (object, {}),
        (bytes, {}),
        (set[int], {}),
        (Decimal, {"type": "string", "format": "decimal"}),
        (Euros, {"type": "string", "format": "decimal"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (date, {"type": "string", "format": "date"}),
        (time, TEXT),
        (timedelta, TEXT),
        (UUID, {"type": "string", "format": "uuid"}),
        (list[int], {"type": "array", "items": NUMBER}),
        (list, {"type": "array"}),
        (tuple[int, ...], {"type": "array", "items": NUMBER}),
        (tuple[int, str], {"type": "array", "items": [NUMBER, TEXT], "minItems": 2, "maxItems": 2}),
        (dict[str, int], {"type": "object", "additionalProperties": NUMBER}),
        (dict[str, Any], {"type": "object"}),
        (int | None, {"anyOf": [NUMBER, NULL]}),
        (int | Any, {}),
        (Literal["a", 1, None], {"enum": ["a", 1, None]}),
        (Literal[Status.DRAFT], {"enum": ["draft"]}),
        (Grade, {"enum": [0, 1, 2]}),
        (Plain, {}),
        (Annotated[int, "how many"], NUMBER),
        (
            Tree,
            {
                "type": "object",
                "properties": {"children": {"type": "array", "items": {"type": "object"}}},
                "required": ["children"],
            },
        ),
    ],
    ids=str,
)
def test_types_become_json_schema(annotation: Any, schema: dict[str, Any]) -> None:
    """
    Each type is described as Django's encoder writes it; what JSON doesn't know takes everything.
    """
    assert json_schema(annotation) == schema


def test_moments_without_a_zone_claim_no_format(settings: Any) -> None:
    """
    A project without USE_TZ writes moments that are no RFC 3339, so nothing says they are.
    """
    settings.USE_TZ = False

    assert json_schema(datetime) == {"type": "string"}


def unreadable(ticket: Ticket, **_keywords: Any) -> Nowhere:
    """
    Return what can't be known when the code runs.
    """


def wordy(ticket: Ticket, **_keywords: Any) -> str:
    """
    Return what is no payload.
    """
    return ""


@pytest.mark.parametrize(("build", "why"), [(unreadable, "NameError"), (wordy, "no dict")])
def test_annotation_that_describes_no_payload_is_told(build: Any, why: str) -> None:
    """
    An annotation that can't be read, or is none of a payload, leaves an open object and says so.
    """
    found = payload_schema(build)

    assert found.schema == {"type": "object"}
    assert why in found.note


class Builder:
    """
    A builder that is an object.
    """

    def __call__(self, ticket: Ticket, **_keywords: Any) -> Line:
        """
        Build a line.
        """
        return {"name": "", "price": Decimal()}

    def method(self, ticket: Ticket, **_keywords: Any) -> Line | None:
        """
        Build a line, or nothing.
        """
        return None


@pytest.mark.parametrize(
    "build", [Builder(), Builder().method, partial(Builder())], ids=["object", "method", "partial"]
)
def test_builders_of_every_kind_are_described(build: Any) -> None:
    """
    Objects, methods and partials are asked like functions, and nothing beside a payload is left out.
    """
    found = payload_schema(build)

    assert list(found.schema["properties"]) == ["name", "price"]
    assert found.note == ""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement came with Python 3.12")
def test_type_statements_are_followed() -> None:
    """
    A name that a type statement gives is as good as what it stands for, and one that holds itself ends.
    """
    space: dict[str, Any] = {}
    exec("type Count = int\ntype Json = dict[str, Json] | None", space)  # noqa: S102 (older Pythons can't read it)

    assert json_schema(space["Count"]) == NUMBER
    assert json_schema(space["Json"]) == {"anyOf": [{"type": "object"}, NULL]}


@settings(deadline=None)
@given(
    some.lists(
        some.tuples(
            some.sampled_from([Transition, BackgroundTransition, Action]),
            some.sets(some.sampled_from(["a", "b", "c"]), min_size=1).map(sorted),
            some.sampled_from(["a", "b", "c"]),
            some.sampled_from([None, True, False, "topic.x", "topic.y", anything]),
            some.sampled_from([None, "failed"]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_catalogue_is_the_same_whatever_the_order(declared: list[Any]) -> None:
    """
    The catalogue does not depend on the order of the declarations, but for the order of the states.
    """
    from tests.flows import bindings  # noqa: PLC0415 (a fixture would outlive an example)

    def told(listed: list[Any]) -> list[tuple[str, set[Any]]]:
        moves = [
            kind(
                f"go{number}", sources, **({} if kind is Action else {"target": target}), event=event, failed_state=bad
            )
            for number, (kind, sources, target, event, bad) in listed
        ]
        with bindings() as bind:
            entries = own(bind(declare(*moves, name="random")))
        assert [entry.topic for entry in entries] == sorted({entry.topic for entry in entries})
        return [
            (topic, {way for way in ways_of(entries) if way.topic == topic}) for topic in (e.topic for e in entries)
        ]

    numbered = list(enumerate(declared))

    assert told(numbered) == told(numbered[::-1])


def test_keys_of_links_are_those_of_their_targets() -> None:
    """
    The key of a model that is another one's link has the type of that one's key.
    """
    from django_logic.outbox.catalogue.schemas import key_schema  # noqa: PLC0415

    assert key_schema(Child._meta.pk) == NUMBER
    assert key_schema(UuidDocument._meta.pk) == {"type": "string", "format": "uuid"}
    assert key_schema(models.DecimalField(max_digits=3, decimal_places=1)) == {}


def test_catalogue_reads_no_row_and_imports_no_broker() -> None:
    """
    The catalogue needs no library of the envelope or of a broker.
    """
    room = Path(sys.modules["django_logic.outbox.catalogue"].__file__ or "").parent

    sources = "".join(path.read_text(encoding="utf-8") for path in room.glob("*.py"))

    assert "import cloudevents" not in sources
    assert "outbox.envelope import" not in sources
