"""
Deliver events to Kafka, over confluent-kafka.

Only the report of each message tells that it has arrived: a flush that leaves nothing behind also ends with
messages that failed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from cloudevents.core.bindings.kafka import to_binary, to_structured
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from django_logic.outbox.envelope import FORMAT, as_cloud_event
from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import Undeliverable
from django_logic.outbox.publishers import Fate, Result, dead, failed, options, sent, unavailable

__all__ = ["Kafka"]

LOG = logging.getLogger(__name__)
MODES = {"structured": to_structured, "binary": to_binary}
#: What `config` can't change: the names by which order and the reports would be lost.
KEPT = frozenset(
    {
        "acks",
        "bootstrap.servers",
        "delivery.timeout.ms",
        "enable.idempotence",
        "error_cb",
        "message.timeout.ms",
        "metadata.broker.list",
        "on_delivery",
        "request.required.acks",
        "transactional.id",
    }
)
#: Seconds that a report may come after its message's time is over; the library looks once a second.
LATE = 3.0
Report: TypeAlias = Callable[[KafkaError | None, Message], None]
HOPELESS = frozenset(
    {
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._INVALID_ARG,
    }
)
GONE = frozenset(
    {
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._AUTHENTICATION,
        KafkaError._FATAL,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    }
)


class Kafka:
    """
    Produce each event under its key with an idempotent producer, and wait until all replicas in sync have it.

    ``topic`` may contain ``{topic}`` and ``{aggregate}``; ``config`` holds further settings of librdkafka.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        topic: str = "events",
        mode: str = "structured",
        timeout: float = 10.0,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if mode not in MODES:
            raise options.refusal("Kafka", "mode", mode, "'structured' or 'binary'")
        self._topic = options.pattern("Kafka", "topic", topic)
        self._encode = MODES[mode]
        self._timeout = options.seconds("Kafka", "timeout", timeout)
        servers = options.text("Kafka", "bootstrap_servers", bootstrap_servers)
        self._config = _settings(self._timeout, options.pieces("Kafka", "config", config, KEPT))
        _try_out(self._config)
        self._config["bootstrap.servers"] = servers
        self._producer: Producer | None = None

    def publish(self, events: Sequence[Event]) -> Sequence[Result]:
        """
        Produce all events, and wait for the report of each.
        """
        results: dict[int, Result] = {}
        if self._producer is None:
            self._producer = Producer(self._config)
        try:
            for index, event in enumerate(events):
                refused = self._produce(self._producer, event, partial(_keep, results, index))
                if refused is not None:
                    results[index] = refused
            unknown = self._wait(self._producer)
        finally:
            lost = any(result.fate is Fate.UNAVAILABLE for result in results.values())
            if lost or len(results) < len(events):
                self.close()
        return [results.get(index, unknown) for index in range(len(events))]

    def close(self) -> None:
        """
        Drop the producer and all it still holds, so that nothing of it arrives after newer events.
        """
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge(blocking=False)

    def _produce(self, producer: Producer, event: Event, report: Report) -> Result | None:
        try:
            message = self._encode(as_cloud_event(event), FORMAT)
            producer.produce(
                options.name_for(self._topic, event),
                key=message.key,
                value=message.value,
                headers=dict(message.headers),
                on_delivery=report,
            )
        except KafkaException as error:
            return _judge(error.args[0])
        except BufferError as error:
            return unavailable(error)
        except Undeliverable as error:
            return dead(error)
        return None

    def _wait(self, producer: Producer) -> Result:
        """
        Wait for all reports, and return the fate of those that have none then.
        """
        try:
            producer.flush(self._timeout + LATE)
        except (KafkaException, SystemError) as error:
            # A fatal error of the producer ends the wait; where it meets a report, Python makes a SystemError of it.
            return unavailable(error.__cause__ or error)
        return unavailable(f"Kafka reported nothing within {self._timeout:g} seconds.")


def _settings(timeout: float, config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        # Sooner than a message's end, or a missing topic would look like a broker that is away.
        "topic.metadata.propagation.max.ms": int(timeout * 500),
        "logger": LOG,
        **config,
        "acks": "all",
        "delivery.timeout.ms": int(timeout * 1000),
        "enable.idempotence": True,
    }


def _try_out(config: Mapping[str, Any]) -> None:
    """
    Let the library judge its settings; without servers it connects to nothing.
    """
    try:
        Producer({**config, "log_level": 0})
    except (KafkaException, TypeError, ValueError) as error:
        # Values stay untold, as there may be passwords among them.
        raise options.refusal("Kafka", "config", sorted(config), f"settings that librdkafka takes ({error})") from error


def _keep(results: dict[int, Result], index: int, error: KafkaError | None, message: Message) -> None:
    results[index] = sent() if error is None else _judge(error)


def _judge(error: KafkaError) -> Result:
    told = f"{error.name()}: {error.str()}"
    if error.fatal() or error.code() in GONE:
        return unavailable(told)
    return dead(told) if error.code() in HOPELESS else failed(told)
