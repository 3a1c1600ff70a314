"""
Prove that every event makes an envelope which the library of CloudEvents takes and reads back.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import Undeliverable
from tests.servers import are_required

try:
    from cloudevents.core.base import BaseCloudEvent
    from cloudevents.core.bindings.http import from_binary, to_binary

    from django_logic.outbox.envelope import FORMAT, STRUCTURED, as_cloud_event, structured
except ModuleNotFoundError:
    if are_required():
        raise
    pytest.skip("install django-logic[events] for the envelope", allow_module_level=True)

if TYPE_CHECKING:
    from pytest_django import Settings

NOON = datetime(2025, 3, 3, 12, 0, tzinfo=UTC)
#: What an outbox stores: an object whose values are any JSON.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(), values, max_size=4),
    max_leaves=12,
)
PAYLOADS = st.dictionaries(st.text(), JSON, max_size=5)


def event(**fields: Any) -> Event:
    """
    Make an event with as little as an event can have.
    """
    least = {"id": UUID(int=7), "topic": "shop.order.placed", "key": "shop.order:1", "payload": {}}
    return Event(**{**least, "occurred_at": NOON, **fields})


def read_back(sent: Event) -> BaseCloudEvent:
    """
    Read an event's text the way a subscriber in another language would: as the library does, with its checks.
    """
    return FORMAT.read(None, structured(sent))


def test_envelope_tells_all_that_an_event_knows() -> None:
    """
    Id, topic, key, aggregate, schema, number, trace and time arrive under the names of CloudEvents.
    """
    sent = event(
        payload={"total": 12},
        sequence=3,
        aggregate="shop.order",
        schema="https://shop.example/order-placed.json",
        traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    )

    found = read_back(sent)

    assert found.get_attributes() == {
        "specversion": "1.0",
        "id": "00000000-0000-0000-0000-000000000007",
        "source": "/shop/order",
        "type": "shop.order.placed",
        "subject": "shop.order:1",
        "time": NOON,
        "datacontenttype": "application/json",
        "dataschema": "https://shop.example/order-placed.json",
        "partitionkey": "shop.order:1",
        "sequence": "3",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    }
    assert found.get_data() == {"total": 12}


def test_envelope_leaves_out_what_an_event_does_not_have() -> None:
    """
    An event made by hand, without object, key, schema, trace and number, has the source / and no empty attribute.
    """
    found = read_back(event(key=""))

    assert found.get_attributes() == {
        "specversion": "1.0",
        "id": "00000000-0000-0000-0000-000000000007",
        "source": "/",
        "type": "shop.order.placed",
        "time": NOON,
        "datacontenttype": "application/json",
    }
    assert found.get_data() == {}


def test_envelope_counts_from_nought() -> None:
    """
    The number 0 is a number, and not the lack of one.
    """
    assert as_cloud_event(event(sequence=0)).get_extension("sequence") == "0"


def test_envelope_refuses_an_event_without_a_topic() -> None:
    """
    An event that no envelope can hold is told to be undeliverable, which no further attempt changes.
    """
    with pytest.raises(Undeliverable, match="found the topic ''"):
        as_cloud_event(event(topic=""))


def test_text_is_ascii_and_of_its_media_type() -> None:
    """
    Text in any alphabet arrives as it was, whatever the way does to bytes above 127; a source is a URI.
    """
    sent = event(topic="laden.größe", key="größe:ß", aggregate="laden.größe und maß", payload={"名前": "Ærø 🐟"})

    found = read_back(sent)

    assert structured(sent).isascii()
    assert FORMAT.get_content_type() == STRUCTURED
    assert (found.get_type(), found.get_subject()) == ("laden.größe", "größe:ß")
    assert found.get_source() == "/laden/gr%C3%B6%C3%9Fe%20und%20ma%C3%9F"
    assert found.get_data() == {"名前": "Ærø 🐟"}


def test_headers_tell_the_same_as_the_text() -> None:
    """
    Attributes in any alphabet survive as HTTP headers too, line breaks included.
    """
    sent = as_cloud_event(event(topic="laden.größe", key="a\r\nb: c", sequence=3, payload={"名前": "Ærø"}))

    message = to_binary(sent, FORMAT)

    assert all(value.isascii() and value.isprintable() for value in message.headers.values())
    found = from_binary(message, FORMAT)
    assert found.get_attributes() == sent.get_attributes()
    assert found.get_data() == sent.get_data()


def test_payload_may_be_any_mapping() -> None:
    """
    A mapping that is no dict is sent like one.
    """
    assert read_back(event(payload=MappingProxyType({"total": 12}))).get_data() == {"total": 12}


def test_time_without_a_zone_is_in_the_zone_of_the_project(settings: Settings) -> None:
    """
    Without USE_TZ times are local times of TIME_ZONE; they are told as moments.
    """
    settings.USE_TZ = False
    settings.TIME_ZONE = "Asia/Tokyo"

    found = read_back(event(occurred_at=datetime(2025, 3, 3, 9, 30)))  # noqa: DTZ001 (the case is a time without one)

    assert found.get_time() == datetime(2025, 3, 3, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "zone", [UTC, timezone(timedelta(hours=-3, minutes=-30)), ZoneInfo("Europe/Amsterdam")], ids=str
)
def test_time_is_told_in_utc(zone: Any) -> None:
    """
    A moment stays the same one and ends in Z, in zones too whose old offsets have seconds, which RFC 3339 lacks.
    """
    moment = datetime(1910, 3, 3, 12, 0, 0, 5, tzinfo=zone)

    text = json.loads(structured(event(occurred_at=moment)))["time"]

    assert text.endswith("Z")
    assert read_back(event(occurred_at=moment)).get_time() == moment


@given(payload=PAYLOADS)
def test_payload_comes_back_equal(payload: dict[str, Any]) -> None:
    """
    Every JSON object is read back as it was written, from the text and from an HTTP message.
    """
    sent = event(payload=payload)

    assert read_back(sent).get_data() == payload
    assert from_binary(to_binary(as_cloud_event(sent), FORMAT), FORMAT).get_data() == payload


@given(key=st.text(), aggregate=st.text(), schema=st.text(), topic=st.text(min_size=1))
def test_any_words_make_a_valid_envelope(key: str, aggregate: str, schema: str, topic: str) -> None:
    """
    The library refuses no event with a topic, whatever its words are, and reads the same words back.
    """
    sent = replace(event(), key=key, aggregate=aggregate, schema=schema, topic=topic)

    found = read_back(sent)

    assert (found.get_subject() or "", found.get_dataschema() or "", found.get_type()) == (key, schema, topic)
    assert (found.get_extension("partitionkey") or "") == key
    assert found.get_source().startswith("/")
    assert found.get_source().isascii()
