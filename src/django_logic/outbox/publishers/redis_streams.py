"""
Deliver events to streams of Redis, over redis-py.

An event counts as sent when Redis has told the number of its entry. Whether an entry survives a crash is said by the
settings of the server (``appendonly``, replicas). What is *not* done here: consumer groups and their readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TryAgainError,
)
from redis.retry import Retry

from django_logic.outbox.envelope import structured
from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import BrokerUnavailable, Undeliverable
from django_logic.outbox.publishers import Result, dead, failed, options, sent, told, unavailable

__all__ = ["BODY", "RedisStreams"]

#: The field with the whole event; ``id``, ``topic`` and ``key`` stand beside it, to choose by without reading it.
BODY = "event"
#: What `connection` can't change: time-outs are an option of ours, and the relay tries again.
KEPT = frozenset({"retry", "retry_on_error", "retry_on_timeout", "socket_connect_timeout", "socket_timeout"})
#: Answers by which Redis takes nothing for now, whoever asks.
AWAY = (AskError, ClusterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
#: The same, as the first words of answers that redis-py, or an old one, has no class for.
AWAY_WORDS = frozenset({"ASK", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "MOVED", "NOREPLICAS", "TRYAGAIN"})


class RedisStreams:
    """
    Append each event to a stream, all of a call in one round trip.

    ``stream`` may contain ``{topic}`` and ``{aggregate}``. ``maxlen`` has Redis drop about all older entries, **also
    those that nobody has read yet**; without it, trimming is left to who knows what has been read. ``timeout`` bounds
    the connecting and each wait for an answer. ``connection`` holds further keywords of `redis.Redis.from_url`, such
    as ``username``, ``password`` and ``ssl_ca_certs``.

    Units: seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        stream: str = "events",
        maxlen: int | None = None,
        timeout: float = 5.0,
        connection: Mapping[str, Any] | None = None,
    ) -> None:
        self._stream = options.pattern("RedisStreams", "stream", stream)
        self._maxlen = _length(maxlen)
        seconds = options.seconds("RedisStreams", "timeout", timeout)
        keywords = options.pieces("RedisStreams", "connection", connection, KEPT)
        times = {"socket_connect_timeout": seconds, "socket_timeout": seconds}
        self._client = _client(options.text("RedisStreams", "url", url), {**keywords, **times})

    def publish(self, events: Sequence[Event]) -> Sequence[Result]:
        """
        Append all events.

        Raises: BrokerUnavailable when the answers did not come, so that nobody knows.
        """
        results: dict[int, Result] = {}
        # No MULTI: an entry that can't be written would undo nothing, and all others would wait for it.
        with self._client.pipeline(transaction=False) as pipeline:
            asked = []
            for index, event in enumerate(events):
                try:
                    self._append(pipeline, event)
                except Undeliverable as error:
                    results[index] = dead(error)
                else:
                    asked.append(index)
            try:
                answers = pipeline.execute(raise_on_error=False)
            except (RedisError, OSError) as error:
                raise BrokerUnavailable(f"Redis has not answered. {told(error)}") from error
        results.update(zip(asked, map(_fate_by, answers), strict=True))
        return [results[index] for index in range(len(events))]

    def close(self) -> None:
        """
        Close the connection; a later `publish` makes another.
        """
        self._client.connection_pool.disconnect()

    def _append(self, pipeline: Any, event: Event) -> None:
        fields = {BODY: structured(event), "id": str(event.id), "topic": event.topic, "key": event.key}
        pipeline.xadd(options.name_for(self._stream, event), fields, maxlen=self._maxlen, approximate=True)


def _client(url: str, keywords: Mapping[str, Any]) -> Redis:
    """
    Return a client that is not connected yet, and tries everything once.
    """
    try:
        # Only a connection looks at its keywords; this one is never opened.
        ConnectionPool.from_url(url, **keywords).make_connection()
    except ValueError:
        # Neither the error nor the rest of the URL is told, as both may hold parts of a password.
        found = url.partition("://")[0] + "://..." if "://" in url else "..."
        raise options.refusal("RedisStreams", "url", found, "a valid redis://, rediss:// or unix:// URL") from None
    except TypeError as error:
        needed = f"keywords of redis.Redis.from_url for this URL ({error})"
        raise options.refusal("RedisStreams", "connection", sorted(keywords), needed) from error
    return Redis.from_url(url, **keywords, retry=Retry(NoBackoff(), 0))


def _length(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise options.refusal("RedisStreams", "maxlen", value, "a number of entries above 0, or None")
    return value


def _fate_by(answer: object) -> Result:
    """
    Say what an answer to an XADD means.
    """
    if not isinstance(answer, Exception):
        return sent()
    is_away = isinstance(answer, AWAY) or str(answer).partition(" ")[0] in AWAY_WORDS
    return unavailable(answer) if is_away else failed(answer)
