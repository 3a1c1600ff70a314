"""
Deliver events to NATS JetStream, over nats-py.

The library is asynchronous: it runs in an event loop of the publisher's own, and only during a call. Reconnecting
is left to the next call, as the library would do it for minutes.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from nats import errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import Header
from nats.js.errors import APIError, NoStreamResponseError

from django_logic.outbox.envelope import STRUCTURED, structured
from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import BrokerUnavailable, Undeliverable
from django_logic.outbox.publishers import Fate, Result, dead, failed, options, sent, told, unavailable

__all__ = ["NatsJetStream"]

SCHEMES = ("nats", "tls", "ws", "wss")
#: Seconds that a connection has to show that it is still one, and then to be closed.
SOON = 2
#: What JetStream says of a message above the size that its stream allows. Source: errors.json of nats-server.
TOO_LARGE = 10054
#: What it says when no stream gets anything: no system, not enabled, or no room on the server or for the account.
UNABLE = frozenset({10002, 10008, 10023, 10028, 10039, 10047, 10076})
KEPT = {
    "allow_reconnect": False,
    # 0 and less mean no limit. What is tried once more is tried at once.
    "max_reconnect_attempts": 1,
    "reconnect_time_wait": 0,
}
ARGUMENTS = frozenset(inspect.signature(Client().connect).parameters)
CALLBACKS = ("closed_cb", "disconnected_cb", "error_cb", "reconnected_cb", "servers")


class Loop(asyncio.SelectorEventLoop):
    """
    Remember what was connected, to end also a connection whose server takes nothing more.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wires: list[asyncio.Transport] = []

    async def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """
        Connect as ever.
        """
        wire, protocol = await super().create_connection(*args, **kwargs)
        self.wires.append(wire)
        return wire, protocol

    async def cut(self) -> None:
        """
        Drop all connections with what was not sent.
        """
        for wire in self.wires:
            wire.abort()
        self.wires.clear()
        # They end in the next round of the loop.
        await asyncio.sleep(0)


class NatsJetStream:
    """
    Publish events side by side, and wait until a stream has each; the stream drops what it got before by its id.

    ``subject`` may contain ``{topic}`` and ``{aggregate}``; ``config`` holds further arguments of `nats.connect`.
    A stream knows an id only within its duplicate window.
    """

    def __init__(
        self,
        servers: str | Sequence[str] = "nats://127.0.0.1:4222",
        *,
        subject: str = "events.{topic}",
        timeout: float = 10.0,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._subject = options.pattern("NatsJetStream", "subject", subject)
        self._timeout = options.seconds("NatsJetStream", "timeout", timeout)
        self._config = options.pieces("NatsJetStream", "config", config, {*KEPT, *CALLBACKS})
        unknown = sorted(set(self._config) - ARGUMENTS)
        if unknown:
            raise options.refusal("NatsJetStream", "config", unknown, "made of arguments of nats.connect")
        self._config |= {**KEPT, "servers": _judge_servers(servers), "error_cb": self._hear, "closed_cb": self._stop}
        self._config.setdefault("connect_timeout", self._timeout)
        self._runner: asyncio.Runner | None = None
        self._client: Client | None = None
        self._work: list[asyncio.Task[Any]] = []
        self._trouble: Exception | None = None

    def publish(self, events: Sequence[Event]) -> Sequence[Result]:
        """
        Publish all events at once, and wait for the answer to each.
        """
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=Loop)
        is_whole = False
        try:
            results = self._runner.run(self._deliver(events))
            is_whole = all(result.fate is not Fate.UNAVAILABLE for result in results)
        finally:
            if not is_whole:
                self.close()
        return results

    def close(self) -> None:
        """
        Close the connection and end the event loop.
        """
        runner, self._runner = self._runner, None
        if runner is not None:
            with runner:
                runner.run(self._disconnect())

    async def _deliver(self, events: Sequence[Event]) -> list[Result]:
        stream = (await self._connected()).jetstream()
        answers = await self._work_on([self._send(stream, event) for event in events])
        return [answer if isinstance(answer, Result) else _judge(answer) for answer in answers]

    async def _send(self, stream: JetStreamContext, event: Event) -> Result:
        body = structured(event)
        headers = {Header.MSG_ID: str(event.id), "Content-Type": STRUCTURED}
        # The library's own time-out begins after what it may wait for room in its buffer.
        async with asyncio.timeout(self._timeout):
            await stream.publish(options.name_for(self._subject, event), body, self._timeout, headers=headers)
        return sent()

    async def _work_on(self, work: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """
        Do work side by side, and return what came of it; it is cancelled when the connection ends.
        """
        self._work = [asyncio.ensure_future(one) for one in work]
        return await asyncio.gather(*self._work, return_exceptions=True)

    async def _connected(self) -> Client:
        """
        Return a connection that has just answered; one that does not is replaced, however long it was idle.
        """
        if self._client is not None:
            [silence] = await self._work_on([self._client.flush(SOON)])
            if silence is None:
                return self._client
        await self._disconnect()
        client = Client()
        self._client = client
        try:
            async with asyncio.timeout(self._timeout):
                await client.connect(**self._config)
        except (OSError, errors.Error) as error:
            # Of several servers that can't be reached, the library tells no reason.
            reason = told(self._trouble or error)
            raise BrokerUnavailable(f"NATS can't be reached: {reason}") from error
        return client

    async def _disconnect(self) -> None:
        client, self._client, self._trouble = self._client, None, None
        if client is not None:
            with suppress(OSError, errors.Error):
                async with asyncio.timeout(SOON):
                    await client.close()
        loop = asyncio.get_running_loop()
        if isinstance(loop, Loop):
            await loop.cut()

    async def _hear(self, error: Exception) -> None:
        self._trouble = error

    async def _stop(self) -> None:
        # The library would let each request run into its time-out.
        for task in self._work:
            task.cancel()


def _judge_servers(servers: object) -> list[str]:
    found = [servers] if isinstance(servers, str) else servers
    if (
        not isinstance(found, list | tuple)
        or not found
        or not all(isinstance(one, str) and urlsplit(one).scheme in SCHEMES for one in found)
    ):
        raise options.refusal("NatsJetStream", "servers", servers, "one or more URLs like nats://127.0.0.1:4222")
    return list(found)


def _judge(error: BaseException) -> Result:
    if isinstance(error, NoStreamResponseError):
        return failed("No stream takes the subject. Make one that does.")
    if isinstance(error, Undeliverable | errors.MaxPayloadError | errors.BadSubjectError):
        return dead(error)
    if isinstance(error, APIError) and error.err_code not in UNABLE:
        return dead(error) if error.err_code == TOO_LARGE else failed(error)
    if isinstance(error, asyncio.CancelledError):
        return unavailable("NATS closed the connection before it answered.")
    return unavailable(error) if isinstance(error, OSError | errors.Error) else failed(error)
