"""
Events go to a FIFO queue, and only what its answer names as successful counts as sent.

The queue is moto's, in a process of its own. What moto never says, as that it is asked too often, comes from an
HTTP server of this module.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_logic.outbox.publishers import Fate
from example import services
from tests.outbox.events import event, fates
from tests.outbox.servers import HOST, Server, or_skipped, silent, sockets_to
from tests.servers import are_required

try:
    from boto3.session import Session

    from django_logic.outbox.publishers.sqs import SqsFifo
except ModuleNotFoundError as missing:
    if are_required():
        raise
    pytest.skip(f"{missing.name} was not found. Install django-logic[sqs].", allow_module_level=True)

QUICK = 3.0
REGION = "eu-central-1"
KEYS = {"aws_access_key_id": "nobody", "aws_secret_access_key": "nothing"}
QUEUE = f"https://sqs.{REGION}.amazonaws.com/123456789012/events.fifo"


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Keep regions and credentials of whoever runs the tests out of them.
    """
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="module")
def moto() -> Iterator[Server]:
    """
    Give a server that speaks SQS.
    """
    with or_skipped():
        if find_spec("moto") is None or find_spec("flask") is None:
            raise services.ServiceMissing("A server for SQS", "the Python package moto[server,sqs]")
        server = Server("http://")
        with server.running((sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(server.port))):
            yield server


class Queue:
    """
    Make a FIFO queue and read it.
    """

    def __init__(self, endpoint: str, **attributes: str) -> None:
        self.client = Session().client("sqs", region_name=REGION, endpoint_url=endpoint, **KEYS)
        self.attributes = {"FifoQueue": "true", **attributes}
        self.name = f"dl-{uuid4().hex}.fifo"
        self.url = self.make()

    def make(self) -> str:
        """
        Make the queue and return its address.
        """
        return str(self.client.create_queue(QueueName=self.name, Attributes=self.attributes)["QueueUrl"])

    def read(self) -> list[dict[str, Any]]:
        """
        Take all messages out, in their order.
        """
        read: list[dict[str, Any]] = []
        while True:
            answer = self.client.receive_message(
                QueueUrl=self.url,
                MaxNumberOfMessages=10,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["All"],
            )
            if not answer.get("Messages"):
                return read
            for message in answer["Messages"]:
                self.client.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
            read += answer["Messages"]

    def ids(self) -> list[str]:
        """
        Take all messages out, and return the ids of their events.
        """
        return [json.loads(message["Body"])["id"] for message in self.read()]


@pytest.fixture
def queue(moto: Server) -> Iterator[Queue]:
    """
    Give an empty queue.
    """
    queue = Queue(moto.url)
    yield queue
    queue.client.close()


def publisher_to(url: str, queue_url: str, **facts: Any) -> SqsFifo:
    """
    Make a publisher for a queue at an endpoint, quick to give up.
    """
    return SqsFifo(queue_url, **{"region": REGION, "endpoint_url": url, "timeout": QUICK, "config": KEYS, **facts})


@pytest.fixture
def publisher(moto: Server, queue: Queue) -> Iterator[SqsFifo]:
    """
    Give a publisher for the queue.
    """
    publisher = publisher_to(moto.url, queue.url)
    yield publisher
    publisher.close()


Answer = tuple[int, str, dict[str, Any]]


@contextmanager
def endpoint(answer: Callable[[list[dict[str, Any]]], Answer]) -> Iterator[tuple[str, list[list[dict[str, Any]]]]]:
    """
    Answer requests for a queue: with a status, an error code or "", and a body. Give the address and what was asked.
    """
    asked: list[list[dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            entries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["Entries"]
            asked.append(entries)
            status, code, facts = answer(entries)
            body = json.dumps({**facts, **({"__type": f"com.amazonaws.sqs#{code}"} if code else {})}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        # Threads of open connections are not waited for.
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def taken(entries: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """
    Answer that these entries were taken.
    """
    return [{"Id": entry["Id"], "MessageId": "1", "MD5OfMessageBody": "0"} for entry in entries]


def test_batch_arrives_whole(queue: Queue, publisher: SqsFifo) -> None:
    """
    More events than one request holds arrive once each, with their envelope, their topic and the group of their key.
    """
    events = [event(str(number), sequence=number) for number in range(25)]

    results = publisher.publish(events)

    read = queue.read()
    groups = {(json.loads(one["Body"])["id"], one["Attributes"]["MessageGroupId"]) for one in read}
    topics = [one["MessageAttributes"]["topic"]["StringValue"] for one in read]
    assert fates(results) == [Fate.SENT] * 25
    assert groups == {(str(one.id), one.key) for one in events}
    assert topics == ["shop.order.paid"] * 25
    assert json.loads(read[0]["Body"])["data"] == {"total": "1.00"}


def test_events_of_one_key_stay_in_order(queue: Queue, publisher: SqsFifo) -> None:
    """
    Events of one key, one batch each, leave the queue in the order they were published.
    """
    events = [event("7") for _ in range(25)]

    for one in events:
        publisher.publish([one])

    assert queue.ids() == [str(one.id) for one in events]


def test_second_delivery_is_dropped_by_the_queue(queue: Queue, publisher: SqsFifo) -> None:
    """
    An event that is published again counts as sent and is in the queue once.
    """
    told = event("7")

    results = [*publisher.publish([told]), *publisher.publish([told])]

    assert fates(results) == [Fate.SENT, Fate.SENT]
    assert queue.ids() == [str(told.id)]


@pytest.mark.parametrize("key", ["x" * 128, "a/b:c", "x" * 129, "two words", "ключ", "new\nline"])
def test_any_key_has_one_group(queue: Queue, publisher: SqsFifo, key: str) -> None:
    """
    A key of any letters and length has one group, which is the key itself where SQS takes that.
    """
    publisher.publish([event(key)])
    publisher.publish([event(key)])

    groups = [one["Attributes"]["MessageGroupId"] for one in queue.read()]
    assert len(groups) == 2
    assert len(set(groups)) == 1
    assert (groups[0] == key) == (key in ("x" * 128, "a/b:c"))
    assert groups[0].isascii()
    assert len(groups[0]) <= 128


def test_events_without_a_key_share_no_group(queue: Queue, publisher: SqsFifo) -> None:
    """
    Events without a key do not wait for each other.
    """
    publisher.publish([event(""), event("")])

    assert len({one["Attributes"]["MessageGroupId"] for one in queue.read()}) == 2


def test_requests_stay_within_the_size_limit() -> None:
    """
    Messages are parted into requests of at most 256 KiB and ten messages; a larger one goes alone.
    """
    sizes = [100_000, 100_000, 100_000, 300_000, *[1_000] * 11]
    events = [event(str(index), payload={"note": "x" * size}) for index, size in enumerate(sizes)]

    with endpoint(lambda entries: (200, "", {"Successful": taken(entries)})) as (url, asked):
        publisher = publisher_to(url, QUEUE)
        results = publisher.publish(events)
        publisher.close()

    assert fates(results) == [Fate.SENT] * 15
    assert [[int(entry["Id"]) for entry in entries] for entries in asked] == [
        [0, 1],
        [2],
        [3],
        list(range(4, 14)),
        [14],
    ]


def test_message_above_the_limit_is_dead_alone(moto: Server) -> None:
    """
    When a request is refused for one message, the others are sent and exactly that one is dead.
    """
    queue = Queue(moto.url, MaximumMessageSize="2000")
    publisher = publisher_to(moto.url, queue.url)
    events = [event("a"), event("b", payload={"note": "x" * 3000}), event("c"), event("d", topic="")]

    results = publisher.publish(events)

    assert fates(results) == [Fate.SENT, Fate.DEAD, Fate.SENT, Fate.DEAD]
    assert "shorter than 2000 bytes" in results[1].error
    assert sorted(queue.ids()) == sorted([str(events[0].id), str(events[2].id)])
    publisher.close()
    queue.client.close()


def test_each_entry_of_an_answer_is_judged_by_itself() -> None:
    """
    In one answer some are sent, those that SQS blames on the sender are dead, and the rest is tried again.
    """

    def answer(entries: list[dict[str, Any]]) -> Answer:
        blamed = {"Id": "1", "SenderFault": True, "Code": "InvalidMessageContents", "Message": "bad letters"}
        broken = {"Id": "2", "SenderFault": False, "Code": "InternalError", "Message": "oops"}
        return 200, "", {"Successful": taken([entries[0], entries[4]]), "Failed": [blamed, broken]}

    with endpoint(answer) as (url, _):
        publisher = publisher_to(url, QUEUE)
        results = publisher.publish([event(str(number)) for number in range(5)])
        publisher.close()

    assert fates(results) == [Fate.SENT, Fate.DEAD, Fate.FAILED, Fate.FAILED, Fate.SENT]
    assert [result.error for result in results[1:4]] == [
        "InvalidMessageContents: bad letters",
        "InternalError: oops",
        "SQS said nothing of the message.",
    ]


def test_throttled_entry_is_not_blamed_on_its_event() -> None:
    """
    An entry refused for the queue's encryption key or its rate costs no attempt, whomever SQS blames for it.
    """

    def answer(entries: list[dict[str, Any]]) -> Answer:
        refused = {"SenderFault": True, "Message": "no"}
        failed = [{"Id": "1", "Code": "KMS.AccessDeniedException"}, {"Id": "2", "Code": "RequestThrottled"}]
        return 200, "", {"Successful": taken(entries[:1]), "Failed": [{**refused, **one} for one in failed]}

    with endpoint(answer) as (url, _):
        publisher = publisher_to(url, QUEUE)
        results = publisher.publish([event(str(number)) for number in range(3)])
        publisher.close()

    assert fates(results) == [Fate.SENT, Fate.UNAVAILABLE, Fate.UNAVAILABLE]


@pytest.mark.parametrize(
    ("status", "code", "fate"),
    [
        (400, "RequestThrottled", Fate.UNAVAILABLE),
        (400, "AWS.SimpleQueueService.NonExistentQueue", Fate.UNAVAILABLE),
        (400, "KmsThrottled", Fate.UNAVAILABLE),
        (403, "AccessDeniedException", Fate.UNAVAILABLE),
        (400, "InvalidClientTokenId", Fate.UNAVAILABLE),
        (500, "InternalFailure", Fate.UNAVAILABLE),
        (503, "", Fate.UNAVAILABLE),
        (400, "UnsupportedOperation", Fate.FAILED),
        (400, "InvalidMessageContents", Fate.DEAD),
        (400, "AWS.SimpleQueueService.BatchRequestTooLong", Fate.DEAD),
    ],
)
def test_refused_request_is_judged_by_its_code(status: int, code: str, fate: Fate) -> None:
    """
    A refusal is asked for once; it is of the queue, of the asker, or of the message.
    """
    with endpoint(lambda entries: (status, code, {"message": "no"})) as (url, asked):
        publisher = publisher_to(url, QUEUE)
        results = publisher.publish([event("a")])
        publisher.close()

    assert fates(results) == [fate]
    assert len(asked) == 1


def test_requests_after_an_outage_are_spared() -> None:
    """
    What came through before the queue went away is sent; nothing more is asked for then.
    """

    def answer(entries: list[dict[str, Any]]) -> Answer:
        return (200, "", {"Successful": taken(entries)}) if len(asked) == 1 else (503, "", {})

    with endpoint(answer) as (url, asked):
        publisher = publisher_to(url, QUEUE)
        results = publisher.publish([event(str(number)) for number in range(40)])
        publisher.close()

    assert fates(results) == [Fate.SENT] * 10 + [Fate.UNAVAILABLE] * 30
    assert len(asked) == 2


def test_same_publisher_works_after_an_outage(queue: Queue, publisher: SqsFifo, moto: Server) -> None:
    """
    While the endpoint is away nothing is sent and nothing hangs; once it is back, the same publisher delivers.
    """
    told = event("a")
    before = publisher.publish([event("a")])
    with moto.frozen():
        frozen = publisher.publish([event("b")])
    moto.kill()
    began = time.monotonic()

    during = publisher.publish([told])
    took = time.monotonic() - began
    moto.start()
    queue.make()
    after = publisher.publish([told])

    assert [fates(one) for one in (before, frozen, during, after)] == [
        [Fate.SENT],
        [Fate.UNAVAILABLE],
        [Fate.UNAVAILABLE],
        [Fate.SENT],
    ]
    assert took < 4 * QUICK
    assert queue.ids() == [str(told.id)]


def test_endpoint_that_never_answers_is_unavailable() -> None:
    """
    An endpoint that takes a connection and says nothing costs bounded time, and is asked once.
    """
    with silent() as port:
        publisher = publisher_to(f"http://{HOST}:{port}", QUEUE, timeout=0.5)
        began = time.monotonic()

        results = publisher.publish([event("a"), event("b")])

        assert fates(results) == [Fate.UNAVAILABLE, Fate.UNAVAILABLE]
        assert time.monotonic() - began < 5
        publisher.close()


def test_missing_credentials_are_looked_for_again(queue: Queue, moto: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without credentials nothing is sent and no attempt is used; the same publisher takes those that come later.
    """
    publisher = publisher_to(moto.url, queue.url, config=None)
    before = publisher.publish([event("a")])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")

    after = publisher.publish([event("a")])

    assert [fates(before), fates(after)] == [[Fate.UNAVAILABLE], [Fate.SENT]]
    assert "NoCredentialsError" in before[0].error
    publisher.close()


def test_close_leaves_nothing_behind() -> None:
    """
    Nothing is connected before the first event; after closing no socket is left, and a later event connects again.
    """
    with endpoint(lambda entries: (200, "", {"Successful": taken(entries)})) as (url, asked):
        port = int(url.rpartition(":")[2])
        publisher = publisher_to(url, QUEUE)
        assert sockets_to(port) == []

        for _ in range(2):
            assert fates(publisher.publish([event("a")])) == [Fate.SENT]
            assert len(sockets_to(port)) == 1

            publisher.close()
            publisher.close()

            assert sockets_to(port) == []
    assert len(asked) == 2
    del publisher
    # What was left open would be told here, and fail the test.
    gc.collect()


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"queue_url": ""}, "queue_url"),
        ({"queue_url": "events.fifo"}, "queue_url"),
        ({"queue_url": QUEUE.removesuffix(".fifo")}, "queue_url"),
        ({"region": ""}, "region"),
        ({"endpoint_url": "localhost:4566"}, "endpoint_url"),
        ({"timeout": "soon"}, "timeout"),
        ({"config": {"acces_key": "x"}}, "config"),
        ({"config": {"region_name": "x"}}, "config"),
    ],
)
def test_wrong_option_is_refused_when_the_publisher_is_made(wrong: dict[str, Any], option: str) -> None:
    """
    A wrong option is refused by name, before anything is connected.
    """
    with pytest.raises(ImproperlyConfigured, match=rf'OUTBOX_PUBLISHERS"\]: the option {option!r} of SqsFifo'):
        SqsFifo(**{"queue_url": QUEUE, "region": REGION, **wrong})


def test_region_and_profile_of_the_machine_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The region may come from the environment; a profile that is not there is told when the publisher is made.
    """
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    SqsFifo(QUEUE).close()
    monkeypatch.setenv("AWS_PROFILE", "missing")

    with pytest.raises(ImproperlyConfigured, match="missing"):
        SqsFifo(QUEUE)
