"""
Events go to Kafka, and only what the broker reported counts as sent.

The cluster is librdkafka's own mock of one: it speaks the protocol on loopback ports, and can be told to fail.
"""

from __future__ import annotations

import ctypes
import json
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_logic.outbox.publishers import Fate
from tests import servers
from tests.outbox.events import event, fates

try:
    import confluent_kafka
    from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka
    from cloudevents.core.formats.json import JSONFormat

    from django_logic.outbox.publishers.kafka import Kafka
except ModuleNotFoundError as missing:
    if servers.are_required():
        raise
    pytest.skip(f"{missing.name} was not found. Install django-logic[kafka].", allow_module_level=True)

PARTITIONS = 4
# Kinds of requests and error codes of Kafka's protocol.
PRODUCE, INIT_PRODUCER_ID = 0, 22
UNKNOWN_TOPIC, CLUSTER_AUTHORIZATION_FAILED, POLICY_VIOLATION = 3, 31, 44


class Cluster:
    """
    Drive a mock cluster of one broker through librdkafka's C interface, which the Python library does not wrap.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(library, name).restype = ctypes.c_void_p
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        self.library = library
        settings = ctypes.c_void_p(library.rd_kafka_conf_new())
        # Nothing connects through the handle itself, which would be worth a warning.
        library.rd_kafka_conf_set(settings, b"log_level", b"0", None, ctypes.c_size_t(0))
        self.handle = ctypes.c_void_p(library.rd_kafka_new(0, settings, None, ctypes.c_size_t(0)))
        self.cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(self.handle, 1))
        self.servers = library.rd_kafka_mock_cluster_bootstraps(self.cluster).decode()

    def create(self, topic: str) -> None:
        """
        Create a topic.
        """
        assert self.library.rd_kafka_mock_topic_create(self.cluster, topic.encode(), PARTITIONS, 1) == 0

    def forget(self, topic: str) -> None:
        """
        Answer that there is no such topic.
        """
        self.library.rd_kafka_mock_topic_set_error(self.cluster, topic.encode(), UNKNOWN_TOPIC)

    def fail(self, request: int, error: int) -> None:
        """
        Answer the next request of a kind with an error.
        """
        self.library.rd_kafka_mock_push_request_errors_array(
            self.cluster, ctypes.c_int16(request), ctypes.c_size_t(1), (ctypes.c_int * 1)(error)
        )

    def refuse(self, partition: int, error: int) -> None:
        """
        Answer the next produce request for a partition of ``events`` with an error.
        """
        request, count = ctypes.c_int16(PRODUCE), ctypes.c_size_t(1)
        refuse = self.library.rd_kafka_mock_partition_push_request_errors
        assert refuse(self.cluster, b"events", ctypes.c_int32(partition), request, count, ctypes.c_int(error)) == 0

    def stop(self) -> None:
        """
        Close the broker's connections and its port.
        """
        assert self.library.rd_kafka_mock_broker_set_down(self.cluster, 1) == 0

    def start(self) -> None:
        """
        Open the broker's port again.
        """
        assert self.library.rd_kafka_mock_broker_set_up(self.cluster, 1) == 0

    def close(self) -> None:
        """
        End the cluster.
        """
        self.library.rd_kafka_mock_cluster_destroy(self.cluster)
        self.library.rd_kafka_destroy(self.handle)

    def read(self, count: int, topic: str = "events") -> list[confluent_kafka.Message]:
        """
        Return at least so many messages of a topic, in the order of each partition.
        """
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.servers, "group.id": str(uuid4())})
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        read: list[confluent_kafka.Message] = []
        end = time.monotonic() + 20
        try:
            while len(read) < count and time.monotonic() < end:
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    read.append(message)
        finally:
            consumer.close()
        assert len(read) >= count, f"{len(read)} of {count} messages came"
        return read


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """
    Give a cluster with the topic ``events``.
    """
    wheel = Path(confluent_kafka.__file__).parent.parent
    path = next(iter((wheel / "confluent_kafka.libs").glob("librdkafka*")), "librdkafka.so.1")
    cluster = Cluster(ctypes.CDLL(str(path)))
    cluster.create("events")
    yield cluster
    cluster.close()


@pytest.fixture
def publisher(cluster: Cluster) -> Iterator[Kafka]:
    """
    Give a publisher with the default topic, quick to give up.
    """
    publisher = Kafka(cluster.servers, timeout=3)
    yield publisher
    publisher.close()


def ids(messages: Sequence[confluent_kafka.Message]) -> list[str]:
    """
    Return the ids of the events in messages.
    """
    return [json.loads(message.value() or b"{}")["id"] for message in messages]


def test_events_of_one_key_stay_in_one_partition_and_in_order(cluster: Cluster, publisher: Kafka) -> None:
    """
    Events of one key land in one partition in the order they were published, and each arrives once.
    """
    rounds = [[event(key) for key in "abcdef"] for _ in range(20)]

    results = [publisher.publish(events) for events in rounds]

    read = cluster.read(120)
    homes = {(message.key(), message.partition()) for message in read}
    assert [fate for some in results for fate in fates(some)] == [Fate.SENT] * 120
    assert len(homes) == 6
    assert len({partition for _, partition in homes}) > 1
    for position, key in enumerate("abcdef"):
        expected = [str(events[position].id) for events in rounds]
        assert expected == ids([message for message in read if message.key() == key.encode()])


def test_structured_message_holds_the_whole_event(cluster: Cluster, publisher: Kafka) -> None:
    """
    By default a message is a CloudEvent in one JSON text, keyed by the object.
    """
    told = event("7", sequence=3)

    publisher.publish([told])

    message = cluster.read(1)[0]
    body = json.loads(message.value() or b"")
    assert message.key() == b"7"
    assert message.headers() == [("content-type", b"application/cloudevents+json")]
    assert (str(told.id), "7", "3", {"total": "1.00"}) == (
        body["id"],
        body["partitionkey"],
        body["sequence"],
        body["data"],
    )


def test_binary_message_holds_the_payload_and_headers(cluster: Cluster) -> None:
    """
    In binary mode the value is the payload alone, and the headers give back the rest of the CloudEvent.
    """
    publisher = Kafka(cluster.servers, mode="binary")
    told = event("7", sequence=3)

    publisher.publish([told])

    message = cluster.read(1)[0]
    headers = dict(message.headers() or [])
    read = from_kafka(KafkaMessage(headers=headers, key=message.key(), value=message.value()), JSONFormat())
    assert json.loads(message.value() or b"") == {"total": "1.00"}
    assert (str(told.id), "shop.order.paid", "7", "3") == (
        read.get_id(),
        read.get_type(),
        read.get_subject(),
        read.get_extension("sequence"),
    )
    publisher.close()


def test_topic_is_made_from_the_event(cluster: Cluster) -> None:
    """
    The name of the topic may hold the event's topic and the object's model.
    """
    publisher = Kafka(cluster.servers, topic="dl.{aggregate}.{topic}")
    cluster.create("dl.shop.order.paid")

    results = publisher.publish([event("7", topic="paid")])

    assert fates(results) == [Fate.SENT]
    assert len(cluster.read(1, "dl.shop.order.paid")) == 1
    publisher.close()


def test_later_report_does_not_cover_an_earlier_failure(cluster: Cluster, publisher: Kafka) -> None:
    """
    When the broker refuses one message and takes the next, exactly the first is not sent (zendesk/maxwell#241).
    """
    publisher.publish([event("a"), event("f")])
    homes = {message.key(): message.partition() for message in cluster.read(2)}
    cluster.refuse(homes[b"a"], POLICY_VIOLATION)
    first, second = event("a"), event("f")

    results = publisher.publish([first, second])

    assert fates(results) == [Fate.FAILED, Fate.SENT]
    assert "POLICY_VIOLATION" in results[0].error
    assert str(first.id) not in ids(cluster.read(3))


def test_message_above_the_limit_is_dead_alone(cluster: Cluster) -> None:
    """
    A message that the producer may never send is dead, and the others of the batch are sent.
    """
    publisher = Kafka(cluster.servers, config={"message.max.bytes": 2000})
    events = [event("a"), event("b", payload={"note": "x" * 3000}), event("c")]

    results = publisher.publish(events)

    assert fates(results) == [Fate.SENT, Fate.DEAD, Fate.SENT]
    assert "MSG_SIZE_TOO_LARGE" in results[1].error
    assert {str(events[0].id), str(events[2].id)} == set(ids(cluster.read(2)))
    publisher.close()


def test_missing_topic_fails_only_its_event(cluster: Cluster) -> None:
    """
    An event whose topic is not there costs an attempt, and the rest is sent: the topic may be made later.
    """
    publisher = Kafka(cluster.servers, topic="{topic}", timeout=3)
    cluster.create("there")
    cluster.forget("missing")

    results = publisher.publish([event("a", topic="missing"), event("b", topic="there")])

    assert fates(results) == [Fate.FAILED, Fate.SENT]
    publisher.close()


def test_same_publisher_works_after_an_outage(cluster: Cluster, publisher: Kafka) -> None:
    """
    While the broker is away nothing is sent and nothing hangs; once it is back, the same publisher delivers.
    """
    first, lost = event("a"), event("b")
    before = publisher.publish([first])
    cluster.stop()
    began = time.monotonic()

    during = publisher.publish([lost])
    took = time.monotonic() - began
    cluster.start()
    after = publisher.publish([lost])

    assert [fates(before), fates(during), fates(after)] == [[Fate.SENT], [Fate.UNAVAILABLE], [Fate.SENT]]
    assert took < 3 + 4
    assert {str(first.id), str(lost.id)} == set(ids(cluster.read(2)))


def test_fatal_error_is_left_behind_with_its_producer(cluster: Cluster, publisher: Kafka) -> None:
    """
    After a fatal error of the idempotent producer the next call delivers, with a new one.
    """
    cluster.fail(INIT_PRODUCER_ID, CLUSTER_AUTHORIZATION_FAILED)

    during = publisher.publish([event("a")])
    after = publisher.publish([event("a")])

    assert [fates(during), fates(after)] == [[Fate.UNAVAILABLE], [Fate.SENT]]


def test_event_without_a_topic_is_dead_alone(cluster: Cluster, publisher: Kafka) -> None:
    """
    An event that has no envelope is dead, and the others of the batch are sent.
    """
    events = [event("a"), event("b", topic=""), event("c")]

    results = publisher.publish(events)

    assert fates(results) == [Fate.SENT, Fate.DEAD, Fate.SENT]


def test_event_without_a_key_has_no_home(cluster: Cluster, publisher: Kafka) -> None:
    """
    A message without a key lets Kafka choose the partition.
    """
    publisher.publish([event("")])

    assert cluster.read(1)[0].key() is None


def test_nothing_is_connected_before_the_first_event() -> None:
    """
    Making and closing a publisher opens no connection; the first event does.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)

        publisher = Kafka(f"127.0.0.1:{server.getsockname()[1]}", timeout=1)

        with pytest.raises(TimeoutError):
            server.accept()
        results = publisher.publish([event("a")])
        server.accept()[0].close()
        assert fates(results) == [Fate.UNAVAILABLE]


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"bootstrap_servers": ""}, "bootstrap_servers"),
        ({"topic": "{key}"}, "topic"),
        ({"topic": "{topic"}, "topic"),
        ({"mode": "text"}, "mode"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "10"}, "timeout"),
        ({"config": {"no.such.setting": 1}}, "config"),
        ({"config": {"message.max.bytes": "many"}}, "config"),
        ({"config": {"enable.idempotence": False}}, "config"),
        ({"config": ["message.max.bytes"]}, "config"),
    ],
)
def test_wrong_option_is_refused_when_the_publisher_is_made(wrong: dict[str, Any], option: str) -> None:
    """
    A wrong option is refused by name, before anything is connected.
    """
    with pytest.raises(ImproperlyConfigured, match=rf'OUTBOX_PUBLISHERS"\]: the option {option!r} of Kafka'):
        Kafka(**{"bootstrap_servers": "127.0.0.1:1", **wrong})
