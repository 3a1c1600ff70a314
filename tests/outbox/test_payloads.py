"""
Test what a payload may be: what every database stores, and nothing else.
"""

from __future__ import annotations

from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_logic import Transition
from django_logic.outbox import PayloadRefused, payload
from django_logic.outbox.models import OutboxDelivery, OutboxMessage
from django_logic.rows import SEQUENCE
from tests.app.models import Ticket
from tests.flows import Bind, declare, moves, stored

pytestmark = pytest.mark.django_db(transaction=True)

WRONG: dict[str, tuple[Any, str]] = {
    "list": ([1], "is a dict; found list"),
    "text": ("{}", "is a dict; found str"),
    "true": (True, "is a dict; found bool"),
    "object": ({"a": object()}, "no JSON"),
    "set": ({"a": {1}}, "no JSON"),
    "bytes": ({"a": b"x"}, "no JSON"),
    "NaN": ({"a": [float("nan")]}, "no JSON"),
    "infinity": ({"a": float("inf")}, "no JSON"),
    "tuple as name": ({(1, 2): 1}, "no JSON"),
    "NUL": ({"a": {"b": "x\x00y"}}, "NUL"),
    "NUL in a name": ({"a\x00": 1}, "NUL"),
    "NUL behind a backslash": ({"a": "\\\x00"}, "NUL"),
    "lone surrogate": ({"a": "\ud800"}, "no JSON"),
    "number nobody prints": ({"a": 10**5000}, "no JSON"),
    "too large": ({"a": "x" * 300_000}, "OUTBOX_MAX_PAYLOAD_BYTES allows 262144"),
    "nested sequence": ({"a": {"n": SEQUENCE}}, "at the top of its payload only"),
    "sequence in a list": ({"a": [SEQUENCE]}, "at the top of its payload only"),
    "sequence under a number": ({1: SEQUENCE}, "names are text"),
    "sequence under NUL": ({"a\x00": SEQUENCE}, "NUL"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_payload_refuses_the_move(bind: Bind, name: str) -> None:
    """
    A payload that can't be stored fails the call with the topic and what was found; nothing of the move is left.
    """
    wrong, text = WRONG[name]
    bind(declare(Transition("open", ["new"], "opened", event=lambda ticket, **_keywords: wrong)))
    ticket = Ticket.objects.create()

    with pytest.raises(PayloadRefused, match=text) as caught:
        ticket.flow.open()

    assert str(caught.value).startswith("ticket.opened: ")
    assert (stored(ticket), ticket.state, moves(ticket), OutboxMessage.objects.count()) == ("new", "new", [], 0)


@pytest.mark.parametrize("name", [*WRONG, "mapping"])
def test_wrong_payload_of_a_message_is_refused(name: str) -> None:
    """
    The same holds for messages written by hand, one by one or many.
    """
    wrong, _text = {**WRONG, "mapping": (MappingProxyType({"a": 1}), "is a dict")}[name]

    with pytest.raises(PayloadRefused):
        OutboxMessage.objects.create(topic="t", payload=wrong)
    with pytest.raises(PayloadRefused):
        OutboxMessage.objects.bulk_create([OutboxMessage(topic="t"), OutboxMessage(topic="t", payload=wrong)])

    assert OutboxMessage.objects.count() == OutboxDelivery.objects.count() == 0


def test_sequence_is_for_moves_only() -> None:
    """
    A message by hand has no move whose number could be filled in.
    """
    with pytest.raises(PayloadRefused, match="SEQUENCE"):
        OutboxMessage.objects.create(topic="t", payload={"n": SEQUENCE})


def test_payload_of_every_kind_arrives_as_it_is(bind: Bind, ticket: Ticket) -> None:
    """
    Whatever JSON can say is kept to the letter: quotes, backslashes, percent signs, other scripts and large numbers.
    """
    told = {
        "text": "\\u0000 'quoted' \"twice\" 100% %s %(x)s {brace} \u2028 ü 漢 😀",
        "backslashes": "\\\\u0000",
        "number": 2**70,
        "nested": {"list": [1, None, True, {"": ""}]},
        "decimal": Decimal("1.10"),
    }
    bind(
        declare(
            Transition(
                "open", ["new"], "opened", event=lambda ticket, payload, **_keywords: {**told, "n": payload["sequence"]}
            )
        )
    )

    ticket.flow.open()

    assert OutboxMessage.objects.get().payload == {**told, "decimal": "1.10", "n": 1}


def test_sequence_is_filled_in_under_any_name(bind: Bind, ticket: Ticket) -> None:
    """
    A builder may put the move's number under names of its own.
    """
    names = ["a,b", "it's", 'a"b', "100%s", "%(pk)s", "ü", ""]

    def build(ticket: Ticket, payload: dict[str, Any], **_keywords: Any) -> dict[str, Any]:
        return dict.fromkeys(names, payload["sequence"])

    bind(declare(Transition("open", ["new"], "opened", event=build)))

    ticket.flow.open()

    assert OutboxMessage.objects.get().payload == dict.fromkeys(names, 1)


def test_size_is_measured_in_bytes(settings: Any) -> None:
    """
    What counts is the JSON in UTF-8: three bytes for a sign that is one character.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_MAX_PAYLOAD_BYTES": 39}
    exact = {"a": "漢" * 10}

    OutboxMessage.objects.create(topic="t", payload=exact)
    with pytest.raises(PayloadRefused, match="has 40 bytes, and OUTBOX_MAX_PAYLOAD_BYTES allows 39"):
        OutboxMessage.objects.create(topic="t", payload={"a": "漢" * 10 + "x"})


@pytest.mark.parametrize("event", ["", " ticket.opened", "ticket\nopened", "x" * 256, 7, ["t"], {"topic": "t"}])
def test_wrong_event_is_refused_where_it_is_declared(event: Any) -> None:
    """
    What names no topic is refused with the place of the declaration.
    """
    with pytest.raises(ImproperlyConfigured, match=r"django_logic\.Transition\('open'\)\.event must be a topic"):
        Transition("open", ["new"], "opened", event=event)


def test_function_that_would_not_run_is_refused_where_it_is_declared() -> None:
    """
    A coroutine or a generator would build nothing.
    """

    async def later(ticket: Ticket, **_keywords: Any) -> dict[str, Any]:
        return {}

    def piecemeal(ticket: Ticket, **_keywords: Any) -> Any:
        yield {}

    for event in (later, piecemeal):
        with pytest.raises(ImproperlyConfigured, match=r"\.event must be .* plain function"):
            Transition("open", ["new"], "opened", event=event)


@pytest.mark.parametrize("wrong", [7, None, " t", "a\nb", "x" * 256])
@pytest.mark.parametrize("name", ["topic", "schema"])
def test_wrong_topic_or_schema_of_a_builder_is_refused(name: str, wrong: Any) -> None:
    """
    What a column can't hold, or nobody could subscribe to, is refused above the function.
    """
    with pytest.raises(ImproperlyConfigured, match=r"django_logic\.outbox\.payload takes topic= and schema="):
        payload(**{name: wrong})


def test_sequence_in_a_text_is_refused() -> None:
    """
    It is not known yet, so a text made of it would say its name instead.
    """
    for make in (lambda: f"{SEQUENCE}", lambda: str(SEQUENCE), lambda: "%s" % SEQUENCE):  # noqa: UP031
        with pytest.raises(TypeError, match="known only as the move is written"):
            make()
