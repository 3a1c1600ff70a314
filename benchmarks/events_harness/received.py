"""
The receiving side: what has arrived, and when.

Subscribers in any process append to one file, which costs each event a system call; a stream is asked for its length.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from events_harness.settings import STREAM
from harness.contender import WrongResult

VARIABLE = "BENCH_RECEIVED"
#: The event's number and the time, which every process of a machine reads off one clock.
RECORD = struct.Struct("<qq")


def note(number: int) -> None:
    """
    Say in a relay that an event has arrived.
    """
    os.write(descriptor(), RECORD.pack(number, time.perf_counter_ns()))


@cache
def descriptor() -> int:
    """
    Open the file of this trial, once.
    """
    return os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND)


class Receiver(Protocol):
    """
    One way of counting what has arrived.
    """

    def environment(self) -> dict[str, str]:
        """
        Return what relays have to be told.
        """

    def count(self) -> int:
        """
        Return how many events have arrived, repeated ones included.
        """

    def check(self, events: int, *, is_hot: bool) -> None:
        """
        Refuse a trial in which events are missing, or out of order.

        Raises: WrongResult.
        """

    def finished(self) -> float:
        """
        Return when the last event arrived, by `time.perf_counter`.
        """


class FileReceiver:
    """
    Read what subscribers noted.
    """

    def __init__(self, path: Path) -> None:
        """
        Take an empty file.
        """
        self.path = path

    def environment(self) -> dict[str, str]:
        """
        Name the file.
        """
        return {VARIABLE: str(self.path)}

    def count(self) -> int:
        """
        Count records.
        """
        return self.path.stat().st_size // RECORD.size

    def arrivals(self) -> dict[int, int]:
        """
        Return when each event came for the first time. Units: nanoseconds.
        """
        found: dict[int, int] = {}
        for number, moment in RECORD.iter_unpack(self.path.read_bytes()):
            found.setdefault(number, moment)
        return found

    def check(self, events: int, *, is_hot: bool) -> None:
        """
        Look for every number, and for their order where it is promised.
        """
        numbers = list(self.arrivals())
        if set(numbers) < set(range(events)):
            raise WrongResult(f"{events} events were written, {len(numbers)} have arrived")
        if is_hot and numbers != sorted(numbers):
            raise WrongResult("events of one key arrived out of order")

    def finished(self) -> float:
        """
        Return the last first arrival.
        """
        return max(self.arrivals().values()) / 1e9


class StreamReceiver:
    """
    Ask Redis for the length of a stream.
    """

    def __init__(self, url: str) -> None:
        """
        Connect, and drop the stream.
        """
        from redis import Redis  # noqa: PLC0415 (peers that publish to no stream do without)

        self.url = url
        self.client: Any = Redis.from_url(url)
        self.client.delete(STREAM)
        self.seen_at = 0.0

    def environment(self) -> dict[str, str]:
        """
        Name the server.
        """
        return {"BENCH_STREAM_URL": self.url}

    def count(self) -> int:
        """
        Return the length.
        """
        found = int(self.client.xlen(STREAM))
        self.seen_at = time.perf_counter()
        return found

    def check(self, events: int, *, is_hot: bool) -> None:
        """
        Count different entries; what they say is another test's business.
        """
        entries = {tuple(sorted(fields.items())) for _, fields in self.client.xrange(STREAM)}
        if len(entries) < events:
            raise WrongResult(f"{events} events were written, {len(entries)} are in the stream")

    def finished(self) -> float:
        """
        Return when the last count was made.
        """
        return self.seen_at


@contextmanager
def receiver(stream_url: str | None) -> Iterator[Receiver]:
    """
    Receive for the length of the block: from a stream where there is one, else from subscribers.
    """
    if stream_url:
        yield StreamReceiver(stream_url)
        return
    with tempfile.NamedTemporaryFile(prefix="bench-received-", delete=False) as file:
        path = Path(file.name)
    try:
        yield FileReceiver(path)
    finally:
        with suppress(FileNotFoundError):
            path.unlink()
