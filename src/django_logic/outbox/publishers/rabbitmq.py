"""
Deliver events to RabbitMQ, over kombu.

An event counts as sent when the broker has confirmed it and a queue has taken it. What is *not* done here: queues
and bindings, which belong to those who read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from amqp.exceptions import (  # type: ignore[import-untyped]
    AMQPError,
    ChannelError,
    MessageNacked,
    NotFound,
    PreconditionFailed,
)
from cloudevents.core.bindings.rabbitmq import RabbitMQMessage, to_binary, to_structured
from kombu.connection import Connection
from kombu.entity import PERSISTENT_DELIVERY_MODE, Exchange
from kombu.messaging import Producer

from django_logic.outbox.envelope import FORMAT, as_cloud_event
from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import BrokerUnavailable, Undeliverable
from django_logic.outbox.publishers import Result, dead, failed, options, sent, told, unavailable

__all__ = ["KEY_HEADER", "RabbitMQ"]

#: The header with the key of an event, for an exchange that hashes it.
KEY_HEADER = "ce-partitionkey"
MODES = {"structured": to_structured, "binary": to_binary}
SCHEMES = frozenset({"amqp", "amqps", "pyamqp"})
#: What `connection` can't change: brokers come by the URL, only AMQP confirms, and nothing here keeps a heart beating.
KEPT = frozenset({"alternates", "heartbeat", "hostname", "transport"})
CONNECT_TIMEOUT = 5.0
# AMQP counts the bytes of a routing key in one byte.
LONGEST_TOPIC = 255


class RabbitMQ:
    """
    Publish to one exchange, the topic as the routing key, and wait for the broker's word on each event.

    ``url`` may name several brokers, parted by ``;``. ``confirm_timeout`` bounds each wait for a broker that is
    connected. ``connection`` holds further keywords of `kombu.Connection`: ``ssl``, ``login_method``,
    ``transport_options`` and ``connect_timeout`` (5 seconds for each broker). With ``declare=False`` the exchange must
    be there already.

    Units: seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        exchange: str = "events",
        exchange_type: str = "topic",
        declare: bool = True,
        mode: str = "structured",
        confirm_timeout: float = 5.0,
        connection: Mapping[str, Any] | None = None,
    ) -> None:
        if mode not in MODES:
            raise options.refusal("RabbitMQ", "mode", mode, "'structured' or 'binary'")
        self._encode = MODES[mode]
        name = options.text("RabbitMQ", "exchange", exchange)
        kind = options.text("RabbitMQ", "exchange_type", exchange_type)
        self._exchange: Any = Exchange(name, kind, durable=True)  # type: ignore[no-untyped-call]
        self._is_declared_here = declare
        self._confirm_timeout = options.seconds("RabbitMQ", "confirm_timeout", confirm_timeout)
        self._connection = _connection(url, options.pieces("RabbitMQ", "connection", connection, KEPT))
        self._producer: Any = None
        self._returned: Exception | None = None

    def publish(self, events: Sequence[Event]) -> Sequence[Result]:
        """
        Deliver events one after the other; where the broker says nothing, the rest stays with the relay.

        Raises: BrokerUnavailable when nothing became of any event.
        """
        results: list[Result] = []
        for event in events:
            try:
                results.append(self._deliver(event))
            except BrokerUnavailable as error:
                if not results:
                    raise
                return results + [unavailable(str(error))] * (len(events) - len(results))
        return results

    def close(self) -> None:
        """
        Take leave of the broker; a later `publish` connects again.
        """
        self._producer = None
        self._connection.release()

    def _deliver(self, event: Event) -> Result:
        if len(event.topic.encode()) > LONGEST_TOPIC:
            return dead(f"A routing key has at most {LONGEST_TOPIC} bytes; found the longer topic {event.topic!r}.")
        try:
            message = self._encode(as_cloud_event(event), FORMAT)
        except Undeliverable as error:
            return dead(error)
        self._connect()
        try:
            self._send(event, message)
        except MessageNacked:
            return failed("RabbitMQ refused the event (nack). Look at the limits of the queues bound to its topic.")
        except BaseException as error:
            # Whatever it was: what the broker still says of this event would be taken for its word on the next.
            self._drop()
            return _fate_after(error)
        if self._returned is not None:
            return failed(f"No queue takes the topic {event.topic!r}. Bind one to the exchange. {self._returned}")
        return sent()

    def _send(self, event: Event, message: RabbitMQMessage) -> None:
        self._returned = None
        key = {KEY_HEADER: event.key} if event.key else {}
        self._producer.publish(
            message.body,
            routing_key=event.topic,
            mandatory=True,
            delivery_mode=PERSISTENT_DELIVERY_MODE,
            timeout=self._confirm_timeout,
            content_type=message.content_type,
            content_encoding="utf-8",
            headers={**message.headers, **key},
            message_id=str(event.id),
        )

    def _connect(self) -> None:
        """
        See that there is a channel to publish on, with one attempt for each broker of the URL.

        Raises: BrokerUnavailable when there is none, or when the broker refuses us or the exchange.
        """
        if self._producer is not None:
            return
        connection = self._connection
        try:
            connection.ensure_connection(max_retries=len(connection.alt[1:]), reraise_as_library_errors=False)
            # So that what takes no time-out of its own ends too: to open, to declare, to close.
            connection.connection.sock.settimeout(self._confirm_timeout)
            channel = connection.channel()
            if self._is_declared_here:
                self._exchange(channel).declare()
            self._producer = Producer(  # type: ignore[no-untyped-call]
                channel, self._exchange, auto_declare=False, on_return=self._take_back
            )
        except BaseException as error:
            self._drop()
            if isinstance(error, Exception):
                # No event was touched yet, so none is at fault.
                raise BrokerUnavailable(f"RabbitMQ can't be used. {told(error)}") from error
            raise

    def _take_back(self, error: Exception, exchange: str, routing_key: str, message: object) -> None:
        # Raised here, it would leave this event's confirm to be taken for that of the next event.
        self._returned = error

    def _drop(self) -> None:
        self._producer = None
        self._connection.collect()


def _connection(url: str, keywords: Mapping[str, Any]) -> Any:
    """
    Return a connection that is not made yet, and confirms what it sends.

    Raises: ImproperlyConfigured also where kombu would take another transport, or overlook a keyword.
    """
    brokers = options.text("RabbitMQ", "url", url).split(";")
    # Neither an error nor the rest of the URL is told, as both may hold parts of a password.
    schemes = sorted({broker.partition("://")[0] if "://" in broker else "" for broker in brokers})
    needed = "a valid amqp:// or amqps:// URL, or several parted by ';'"
    if not SCHEMES.issuperset(schemes):
        raise options.refusal("RabbitMQ", "url", [f"{scheme}://..." for scheme in schemes], needed)
    unknown = sorted(set(keywords) - set(signature(Connection).parameters))
    if unknown:
        raise options.refusal("RabbitMQ", "connection", unknown, "keywords of kombu.Connection")
    transport = {**keywords.get("transport_options", {}), "confirm_publish": True}
    try:
        return Connection(  # type: ignore[no-untyped-call]
            url, **{"connect_timeout": CONNECT_TIMEOUT, **keywords, "transport_options": transport}
        )
    except ValueError:
        raise options.refusal("RabbitMQ", "url", [f"{scheme}://..." for scheme in schemes], needed) from None


def _fate_after(error: BaseException) -> Result:
    """
    Say what an error while an event was sent means for this event.

    Raises: BrokerUnavailable when it means more than this event, the error itself when it is not the broker's.
    """
    if isinstance(error, PreconditionFailed):
        # A publish like ours gets this for one reason: it is larger than the broker allows.
        return dead(error)
    if isinstance(error, ChannelError) and not isinstance(error, NotFound):
        return failed(error)
    if isinstance(error, AMQPError | OSError):
        raise BrokerUnavailable(f"RabbitMQ has not confirmed the event. {told(error)}") from error
    raise error
