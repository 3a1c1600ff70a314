"""
Read what relays have delivered back from real brokers, with nothing but the libraries of the brokers.

Each broker here has a place of its own for every test, says how a relay gets there, and counts and reads what arrived.
What is *not* done here: how a publisher treats each answer of its broker, which its own tests show.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID, uuid4

import pytest

from tests.outbox.seen import Sight
from tests.outbox.servers import Server
from tests.servers import are_required

try:
    import kombu
    import nats
    import redis
    from nats.js.api import StreamConfig
except ModuleNotFoundError as missing:
    if are_required():
        raise
    pytest.skip(f"{missing.name} was not found. Install the extras of publishers.", allow_module_level=True)

__all__ = [
    "BROKERS",
    "MODULE",
    "Broker",
    "JetStream",
    "RabbitQueue",
    "RedisStream",
    "held",
    "ids",
    "seen",
]

#: The plugin with the fixtures `rabbit_queue`, `redis_stream` and `jet_stream`, for ``pytest_plugins``.
BROKERS = "tests.outbox.broker_fixtures"

#: How long publishers of tests wait for an answer: longer than a busy machine takes. Seconds.
QUICK = 2.0
MODULE = "django_logic.outbox.publishers"


class Broker(Protocol):
    """
    Stand for one broker, and the place in it that belongs to one test.
    """

    server: Server

    def entry(self) -> dict[str, Any]:
        """
        Say how a relay gets there, as the settings do.
        """

    def start(self) -> None:
        """
        Start the server again, and what reads there.
        """

    def count(self) -> int:
        """
        Count the messages that are there.
        """

    def read(self) -> list[bytes]:
        """
        Take all messages, the first one first.
        """


class RabbitQueue:
    """
    Read a durable queue that was bound to an exchange of its own before anything was published.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.exchange = f"events-{uuid4().hex}"
        exchange = kombu.Exchange(self.exchange, "topic", durable=True)
        self.queue = kombu.Queue(f"{self.exchange}-all", exchange, routing_key="#", durable=True)
        self.bind("#")

    def bind(self, key: str) -> None:
        """
        Declare the queue, and bind it by a key.
        """
        with kombu.Connection(self.server.url) as connection:
            queue = self.queue(connection.channel())
            queue.declare()
            queue.bind_to(self.exchange, routing_key=key)

    def start(self) -> None:
        """
        Start the server again, and bind the queue anew: a RabbitMQ that was killed on a busy machine was seen to come
        back without its binding, which costs events the attempts that their log tells of.
        """
        self.server.start()
        self.bind("*.*")

    def entry(self) -> dict[str, Any]:
        """
        Say how a relay gets there.
        """
        options = {"url": self.server.url, "exchange": self.exchange, "confirm_timeout": QUICK}
        return {"BACKEND": f"{MODULE}.rabbitmq.RabbitMQ", "OPTIONS": options}

    def count(self) -> int:
        """
        Count the messages in the queue.
        """
        with kombu.Connection(self.server.url) as connection:
            return int(self.queue(connection.channel()).queue_declare(passive=True).message_count)

    def read(self) -> list[bytes]:
        """
        Take all messages out of the queue.
        """
        with self.taken(no_ack=True) as messages:
            return [message.body for message in messages]

    @contextmanager
    def taken(self, **options: Any) -> Iterator[list[Any]]:
        """
        Give all messages of the queue; those that ought to be acknowledged, and are not within the block, go back.
        """
        with kombu.Connection(self.server.url) as connection:
            source = self.queue(connection.channel())
            yield list(iter(lambda: source.get(**options), None))


class RedisStream:
    """
    Read a stream of its own.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.stream = f"events-{uuid4().hex}"

    def entry(self) -> dict[str, Any]:
        """
        Say how a relay gets there.
        """
        options = {"url": self.server.url, "stream": self.stream, "timeout": QUICK}
        return {"BACKEND": f"{MODULE}.redis_streams.RedisStreams", "OPTIONS": options}

    def start(self) -> None:
        """
        Start the server again.
        """
        self.server.start()

    def count(self) -> int:
        """
        Count the entries of the stream.
        """
        with closing(redis.Redis.from_url(self.server.url)) as client:
            return int(client.xlen(self.stream))

    def read(self) -> list[bytes]:
        """
        Return the events of all entries.
        """
        with closing(redis.Redis.from_url(self.server.url)) as client:
            return [fields[b"event"] for _number, fields in client.xrange(self.stream)]


class JetStream:
    """
    Read a stream of its own, on a subject that only it takes.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.name = f"events-{uuid4().hex}"
        asyncio.run(self._make())

    def entry(self) -> dict[str, Any]:
        """
        Say how a relay gets there.
        """
        options = {"servers": self.server.url, "subject": f"{self.name}.{{topic}}", "timeout": QUICK}
        return {"BACKEND": f"{MODULE}.nats.NatsJetStream", "OPTIONS": options}

    def start(self) -> None:
        """
        Start the server again.
        """
        self.server.start()

    def count(self) -> int:
        """
        Count the messages of the stream.
        """
        return asyncio.run(self._count())

    def read(self) -> list[bytes]:
        """
        Return all messages.
        """
        return asyncio.run(self._read())

    async def _make(self) -> None:
        async with await nats.connect(self.server.url) as client:
            await client.jetstream().add_stream(StreamConfig(name=self.name, subjects=[f"{self.name}.>"]))

    async def _count(self) -> int:
        async with await nats.connect(self.server.url) as client:
            return int((await client.jetstream().stream_info(self.name)).state.messages)

    async def _read(self) -> list[bytes]:
        count = await self._count()
        async with await nats.connect(self.server.url) as client:
            source = await client.jetstream().pull_subscribe(f"{self.name}.>", stream=self.name)
            found: list[bytes] = []
            while len(found) < count:
                found += [message.data for message in await source.fetch(count - len(found))]
            return found


def held(entry: Mapping[str, Any]) -> dict[str, Any]:
    """
    Have a relay wait at a gate where a reason asks for it, after the broker has taken a batch and before it is marked.
    """
    options = {"backend": entry["BACKEND"], "options": entry["OPTIONS"]}
    return {"BACKEND": "tests.outbox.relay_app.publishers.Held", "OPTIONS": options}


def seen(bodies: Sequence[bytes]) -> list[Sight]:
    """
    Return what consumers have read as what was seen; a broker tells neither attempts nor processes.
    """
    found = []
    for body in map(json.loads, bodies):
        at = datetime.fromisoformat(body["time"])
        place = body["partitionkey"], int(body["sequence"])
        found.append(Sight("broker", UUID(body["id"]), body["type"], *place, attempt=0, pid=0, at=at))
    return found


def ids(bodies: Sequence[bytes]) -> list[UUID]:
    """
    Return which events consumers have read, as often as they did.
    """
    return [UUID(json.loads(body)["id"]) for body in bodies]
