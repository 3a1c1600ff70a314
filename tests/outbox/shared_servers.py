"""
Offer one server of each kind for the whole run, to modules that say ``pytest_plugins = [SHARED_SERVERS]``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.outbox.servers import LARGEST_MESSAGE, Server, or_skipped, rabbitmq, redis


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[Server]:
    """
    Give the RabbitMQ of the run.
    """
    with or_skipped(), rabbitmq({"max_message_size": str(LARGEST_MESSAGE)}) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    """
    Give the Redis of the run that listens on a port.
    """
    with or_skipped(), redis() as server:
        yield server
