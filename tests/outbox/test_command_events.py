"""
Promises of `manage.py dl_events`: the list, the document that others read, and the check that it is still true.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from hypothesis import given, settings
from hypothesis import strategies as some
from jsonschema import Draft7Validator

from django_logic import Action, Process, Transition
from django_logic.background import BackgroundTransition
from django_logic.machines import machines
from django_logic.outbox import Event, payload
from django_logic.outbox.catalogue import Entry, Shape, asyncapi, catalogue, compared
from django_logic.outbox.catalogue.asyncapi import CONTENT_TYPE
from django_logic.outbox.envelope import STRUCTURED, structured
from django_logic.outbox.models import OutboxMessage
from tests.app.models import Level, Ticket, UuidDocument
from tests.app.process import DocumentProcess, LevelProcess
from tests.flows import Bind, declare
from tests.outbox.driving import drive, work

ROOT = Path(__file__).parents[2]
#: The schema of AsyncAPI 3.0.0 documents: see NOTICE.md beside it.
RULES = Draft7Validator(
    json.loads((Path(__file__).parent / "data" / "asyncapi-3.0.0.json").read_text(encoding="utf-8"))
)
FORMATS = Draft7Validator.FORMAT_CHECKER


class Paid(TypedDict):
    """
    What is told of a payment.
    """

    total: str


@payload(schema="https://schemas.example.com/paid/1")
def paid(ticket: Ticket, **_keywords: Any) -> Paid:
    """
    Build what is told of a payment.
    """
    return {"total": "9.90"}


class Paid2(Paid):
    """
    The second version.
    """

    currency: str


@payload(schema="https://schemas.example.com/paid/2")
def paid2(ticket: Ticket, **_keywords: Any) -> Paid2:
    """
    Build the second version.
    """
    return {"total": "9.90", "currency": "EUR"}


def unreadable(ticket: Ticket, **_keywords: Any) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    """
    Return what can't be known.
    """


WORK = {"side_effects": [work], "max_errors": 1}
SHOP = [
    Transition("open", ["new"], "opened"),
    Transition("pay", ["opened", "due"], "paid", event=paid),
    BackgroundTransition(
        "print",
        ["paid"],
        "printed",
        in_progress_state="printing",
        failed_state="due",
        side_effects=[work],
        max_errors=1,
    ),
    Action("weigh", ["paid"], event="ticket weighed/{}"),
]


def run(*arguments: str, **options: Any) -> str:
    """
    Run the command and return what it wrote.
    """
    out = io.StringIO()
    call_command("dl_events", *arguments, stdout=out, **{"stderr": io.StringIO(), **options})
    return out.getvalue()


def fail(*arguments: str) -> tuple[str, str]:
    """
    Run the command, which has to fail with exit status 1, and return what it wrote and why it failed.
    """
    out = io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command("dl_events", *arguments, stdout=out, stderr=io.StringIO())
    assert caught.value.returncode == 1
    return out.getvalue(), str(caught.value)


def bound_only(monkeypatch: pytest.MonkeyPatch, bind: Bind, *process_classes: Any) -> None:
    """
    Bind processes of tickets, and nothing else.
    """
    monkeypatch.setattr("django_logic.binding.ProcessManager.bindings", [])
    for process_class in process_classes:
        bind(process_class)


def test_list_shows_every_event_by_model(monkeypatch: pytest.MonkeyPatch, bind: Bind) -> None:
    """
    Each event is a line with its topic, its way, who emits it and its fields.
    """
    bound_only(monkeypatch, bind, declare(*SHOP))

    assert run() == (
        "app.Ticket, flow\n"
        "  topic              from         to        action          payload\n"
        "  ticket weighed/{}  paid                   weigh           of every move\n"
        "  ticket.due         printing     due       print (failed)  of every move\n"
        "  ticket.opened      new          opened    open            of every move\n"
        "  ticket.paid        opened, due  paid      pay             total [https://schemas.example.com/paid/1]\n"
        "  ticket.printed     printing     printed   print           of every move\n"
        "  ticket.printing    paid         printing  print (busy)    of every move\n"
        "\n"
        "of every move: <model>_id, object_id, from, to, action, sequence, actor, reason, occurred_at\n"
        "6 events.\n"
    )


def test_nothing_bound_is_said(monkeypatch: pytest.MonkeyPatch, bind: Bind) -> None:
    """
    A project without processes gets an answer, and a document without channels.
    """
    bound_only(monkeypatch, bind)

    assert run() == "0 events.\n"
    assert RULES.is_valid(json.loads(run("--asyncapi")))


def test_models_narrow_the_list() -> None:
    """
    Named models, in any case, are listed alone, each once.
    """
    told = run("app.level", "app.Level", "app.UuidDocument")

    assert [line for line in told.splitlines() if line.startswith("app.")] == [
        "app.Level, process",
        "app.UuidDocument, process",
    ]
    assert "6 events." not in told
    assert told.endswith("5 events.\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["app.Ordr"], "no model is called 'app.Ordr'. Did you mean 'app.Order' or "),
        (["app.Product"], "app.Product has no process"),
        (["--title", "x"], "--title is a part of an AsyncAPI document. Add --asyncapi."),
        (["--json", "--version", "2"], "--version is a part of an AsyncAPI document. Add --asyncapi."),
        (["--check", "x", "--output", "y"], "--check writes no document."),
        (["--json", "--asyncapi"], "not allowed with"),
        (["--json", "--output", "/nowhere/at/all"], "/nowhere/at/all can't be written: No such file or directory."),
        (["--check", "/nowhere/at/all"], "/nowhere/at/all can't be read: No such file or directory."),
    ],
)
def test_wrong_argument_is_one_clear_line(arguments: list[str], told: str) -> None:
    """
    What can't work is said in one line, with exit status 1 and nothing on standard output.
    """
    out, error = fail(*arguments)

    assert out == ""
    assert told in error
    assert "\n" not in error


def test_json_is_the_catalogue(monkeypatch: pytest.MonkeyPatch, bind: Bind) -> None:
    """
    --json writes the whole catalogue.
    """
    bound_only(monkeypatch, bind, declare(*SHOP))

    told = json.loads(run("--json"))

    assert told == json.loads(json.dumps([entry.as_dict() for entry in catalogue()]))
    assert told[3]["emitters"] == [
        {
            "aggregate": "app.ticket",
            "model": "app.Ticket",
            "process": "tests.flows.FlowProcess",
            "process_name": "flow",
            "action": "pay",
            "kind": "move",
            "from": ["opened", "due"],
            "to": "paid",
        }
    ]


def test_builder_that_is_not_described_is_told(bind: Bind) -> None:
    """
    An annotation nobody can read is told on standard error, by topic and function.
    """
    bind(declare(Transition("open", ["new"], "opened", event=unreadable)))
    warned = io.StringIO()

    run("app.Ticket", stderr=warned)

    assert f"ticket.opened: what {__name__}.unreadable returns is not described" in warned.getvalue()


def test_document_follows_the_rules_of_asyncapi(bind: Bind, tmp_path: Path) -> None:
    """
    The document of everything that is bound is valid AsyncAPI 3.0, its payloads are valid JSON Schema, and it leads
    nowhere outside itself.
    """
    bind(declare(*SHOP))
    file = tmp_path / "events.json"

    run("--asyncapi", "--title", "Shop", "--version", "2.1.0", "--output", str(file))

    document = json.loads(file.read_text(encoding="utf-8"))
    assert [error.message for error in RULES.iter_errors(document)] == []
    assert document["info"] == {"title": "Shop", "version": "2.1.0"}
    for schema in document["components"]["schemas"].values():
        Draft7Validator.check_schema(schema)
    for reference in references_in(document):
        assert found_at(document, reference) is not None, reference
    topics = [channel["title"] for channel in document["channels"].values()]
    assert topics == sorted(entry.topic for entry in catalogue())
    assert document["channels"]["ticket.paid"]["address"] == "ticket.paid"
    assert {None} == {one["address"] for one in document["channels"].values() if "{" in one["title"]}


def references_in(value: Any) -> list[str]:
    """
    Return every reference in a document.
    """
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for inner in value.values() for found in references_in(inner)]
    return [found for inner in value for found in references_in(inner)] if isinstance(value, list) else []


def found_at(document: Any, reference: str) -> Any:
    """
    Return what a reference names.
    """
    assert reference.startswith("#/")
    for step in reference[2:].split("/"):
        document = document.get(step) if isinstance(document, dict) else None
    return document


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("model", "process_class"),
    [
        (Ticket, declare(*SHOP)),
        (Level, declare(*LevelProcess.transitions)),
        (UuidDocument, declare(*DocumentProcess.transitions)),
    ],
    ids=["shop", "level", "document"],
)
def test_document_describes_what_brokers_carry(bind: Bind, model: Any, process_class: type[Process]) -> None:
    """
    Every event in its envelope, as destinations get it, fits one message of its channel and none of another channel.
    """
    bind(process_class, model)
    document = asyncapi(catalogue(machines(model)), title="x", version="1")

    for message in drive(model, process_class):
        told = json.loads(structured(event_of(message)))
        fitting = {channel["title"] for channel in document["channels"].values() if fits(document, channel, told)}
        assert fitting == {message.topic}, told
        for name in ("type", "source", "subject", "id", "data"):
            wrong = {**told, name: "\n"} if name in ("type", "source") else {k: told[k] for k in told if k != name}
            assert not any(fits(document, channel, wrong) for channel in document["channels"].values()), name


def event_of(message: OutboxMessage) -> Event:
    """
    Return a message as the event that publishers get.
    """
    names = ("id", "topic", "key", "payload", "occurred_at", "sequence", "aggregate", "schema", "traceparent")
    return Event(**{name: getattr(message, name) for name in names})


def fits(document: dict[str, Any], channel: dict[str, Any], told: Any) -> bool:
    """
    Tell whether an envelope is a message of a channel.
    """
    messages = [found_at(document, one["$ref"]) for one in channel["messages"].values()]
    return any(
        Draft7Validator({**message["payload"], "components": document["components"]}, format_checker=FORMATS).is_valid(
            told
        )
        for message in messages
    )


def test_media_type_is_that_of_the_envelope() -> None:
    """
    The document names the media type that envelopes are published with.
    """
    assert CONTENT_TYPE == STRUCTURED


SHAPE = Shape(aggregate="app.ticket", schema="", payload={"type": "object"})


@settings(deadline=None)
@given(
    some.lists(
        some.text(some.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=20),
        unique=True,
        max_size=4,
    )
)
def test_any_topic_gives_a_valid_document(topics: list[str]) -> None:
    """
    Whatever a topic is, the document is valid, has a channel for it, and mixes it up with no other.
    """
    tricky = dict.fromkeys([*topics, "a b", "a_b", "a/b", "{x}", "a 2", "CloudEvent", "event.a", "a~1b"])
    several = (SHAPE, replace(SHAPE, schema="urn:two"))
    entries = [Entry(topic=topic, emitters=(), shapes=several) for topic in sorted(tricky)]

    document = asyncapi(entries, title="x", version="1")

    assert RULES.is_valid(document)
    assert [channel["title"] for channel in document["channels"].values()] == sorted(tricky)
    assert len(document["components"]["messages"]) == 2 * len(tricky)
    assert not compared(document, json.loads(json.dumps(document)))


def test_output_is_the_same_in_every_process(tmp_path: Path) -> None:
    """
    Two processes with different seeds of hashes write the same bytes.
    """
    texts = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "DJANGO_SETTINGS_MODULE": "tests.settings"}
        environment["PYTHONPATH"] = os.pathsep.join([*filter(None, sys.path), str(ROOT)])
        command = [sys.executable, "-m", "django", "dl_events", "--asyncapi"]
        texts.append(subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True).stdout)

    assert texts[0] == texts[1]
    assert len(json.loads(texts[0])["channels"]) > 10


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch, bind: Bind, tmp_path: Path) -> Path:
    """
    Give the document of a small process that is bound.
    """
    bound_only(monkeypatch, bind, declare(*SHOP))
    file = tmp_path / "events.json"
    run("--asyncapi", "--title", "Shop", "--version", "7", "--output", str(file))
    return file


def rebind(monkeypatch: pytest.MonkeyPatch, bind: Bind, *transitions: Any) -> None:
    """
    Bind a changed process in the place of the published one.
    """
    bound_only(monkeypatch, bind)
    delattr(Ticket, "flow")
    bind(declare(*transitions))


def test_check_passes_while_nothing_has_changed(published: Path) -> None:
    """
    A document that is what the code emits passes, whatever its owner says of himself and his servers.
    """
    document = json.loads(published.read_text(encoding="utf-8"))
    document["servers"] = {"bus": {"host": "bus.example.com", "protocol": "amqp"}}
    document["info"]["description"] = "What the shop tells."
    published.write_text(json.dumps(document), encoding="utf-8")

    assert run("--check", str(published)) == f"{published} is what the code emits: 6 events.\n"


def test_check_tells_what_was_added_removed_and_changed(
    monkeypatch: pytest.MonkeyPatch, bind: Bind, published: Path
) -> None:
    """
    The check fails with a line for each topic that came, went, or tells something else, and says what.
    """
    rebind(
        monkeypatch,
        bind,
        Transition("open", ["new"], "opened"),
        Transition("pay", ["opened", "due"], "paid", event=paid2),
        Transition("print", ["paid", "opened"], "printed"),
        Transition("burn", ["paid"], "burnt"),
    )

    out, error = fail("--check", str(published))

    assert out.splitlines()[:4] == [
        "added    ticket.burnt",
        "removed  ticket weighed/{}",
        "removed  ticket.due",
        "removed  ticket.printing",
    ]
    assert "changed  ticket.paid: + currency" in out
    assert 'changed  ticket.printed: from: {"enum": ["printing"]} -> {"enum": ["opened", "paid"]}' in out
    assert "changed  ticket.opened" not in out
    assert error == (
        f"{published} is not what the code emits. Tell your readers, and write it anew: manage.py dl_events --asyncapi"
        f" --output {published}."
    )


def test_check_notices_another_schema_and_other_sources(
    monkeypatch: pytest.MonkeyPatch, bind: Bind, published: Path
) -> None:
    """
    A topic whose fields stay has changed when its schema has another name, or something else emits it.
    """

    @payload(schema="https://schemas.example.com/paid/9")
    def renamed(ticket: Ticket, **_keywords: Any) -> Paid:
        return {"total": ""}

    others = [one for one in SHOP if one.action_name != "pay"]
    rebind(monkeypatch, bind, *others, Transition("pay", ["opened", "due"], "paid", event=renamed))
    assert "changed  ticket.paid: its messages\n" in fail("--check", str(published))[0]

    rebind(monkeypatch, bind, *others, Transition("pay", ["opened"], "paid", event=paid))
    assert (
        "changed  ticket.paid: emitted by app.Ticket pay: opened -> paid (was app.Ticket pay: opened, due -> paid)\n"
    ) in fail("--check", str(published))[0]


def test_check_tells_of_a_document_of_another_version(published: Path) -> None:
    """
    A document whose topics agree, but not how it is written, is not what the code emits.
    """
    document = json.loads(published.read_text(encoding="utf-8"))
    published.write_text(json.dumps({**document, "asyncapi": "2.6.0"}), encoding="utf-8")

    assert fail("--check", str(published))[0] == "changed  how topics are described\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is no JSON: "),
        ("[1]", "is no AsyncAPI document."),
        ("{}", "is no AsyncAPI document."),
        ("\x00", "is no JSON: "),
        ("[" * 100_000, "is no JSON: "),
    ],
)
def test_check_refuses_what_is_no_document(tmp_path: Path, text: str, told: str) -> None:
    """
    A file that is no document is refused in one line.
    """
    file = tmp_path / "events.json"
    file.write_text(text, encoding="utf-8")

    assert told in fail("--check", str(file))[1]


JSON = some.recursive(
    some.none() | some.booleans() | some.text(max_size=3) | some.just("#/components") | some.just("#/channels/a"),
    lambda inner: (
        some.lists(inner, max_size=3)
        | some.dictionaries(
            some.sampled_from(["$ref", "messages", "channel", "action", "a", "title", "data", "properties", "anyOf"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(some.dictionaries(some.sampled_from(["channels", "operations", "components", "asyncapi"]), JSON))
def test_comparison_bears_any_document(document: dict[str, Any]) -> None:
    """
    A document that is JSON but makes no sense only differs; one that is the same never does.
    """
    current = asyncapi([Entry(topic="a", emitters=(), shapes=(SHAPE,))], title="x", version="1")

    assert compared(document, current)
    assert not compared(document, document)
