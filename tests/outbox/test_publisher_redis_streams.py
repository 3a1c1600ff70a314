"""
Events go to streams of Redis, and only an entry that a real server has numbered counts as sent.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import BrokerUnavailable
from django_logic.outbox.publishers import Fate
from tests.outbox import servers
from tests.outbox.events import fates
from tests.outbox.servers import Server
from tests.servers import are_required

try:
    import redis
    from cloudevents.core.formats.json import JSONFormat

    from django_logic.outbox.publishers.redis_streams import BODY, RedisStreams
except ModuleNotFoundError as missing:
    if are_required():
        raise
    pytest.skip(f"{missing.name} was not found. Install django-logic[redis-streams].", allow_module_level=True)

pytest_plugins = [servers.SHARED_SERVERS]

TOPIC = "shop.order.paid"
#: Longer than any answer takes, and shorter than a reader's patience; seconds.
SHORT = 2.0
#: What a busy machine may add to a time-out; seconds.
SLACK = 4.0


def event(topic: str = TOPIC, key: str = "7", **facts: Any) -> Event:
    """
    Make an event with an identity of its own.
    """
    told = {"payload": {"total": "1.00", "name": "Žižek"}, "aggregate": "shop.order", "sequence": 3, **facts}
    return Event(id=uuid4(), topic=topic, key=key, occurred_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), **told)


def ids(events: Sequence[Event]) -> list[str]:
    """
    Return the identities as they are sent.
    """
    return [str(event.id) for event in events]


class Desk:
    """
    Talk to one server with redis-py alone.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = redis.Redis.from_url(server.url)

    def read(self, stream: str = "events") -> list[Mapping[bytes, bytes]]:
        """
        Return the fields of all entries of a stream.
        """
        return [fields for _, fields in self.client.xrange(stream)]

    def read_ids(self, stream: str = "events") -> list[str]:
        """
        Return the identities of all events in a stream.
        """
        return [fields[b"id"].decode() for fields in self.read(stream)]

    def close(self) -> None:
        """
        Hang up until the next use.
        """
        self.client.connection_pool.disconnect()

    def times(self, command: str) -> int:
        """
        Count the calls of a command since the server started.
        """
        told: Any = self.client.info("commandstats")
        return int(told.get(f"cmdstat_{command}", {"calls": 0})["calls"])

    def complaint(self) -> str:
        """
        Tell why the server does not answer a ping; "" when it does.
        """
        try:
            self.client.ping()
        except redis.RedisError as error:
            return str(error)
        return ""

    def wait(self) -> None:
        """
        Wait until the server answers a ping.
        """
        self.server.wait(lambda: not self.complaint())


@pytest.fixture
def desk(redis_server: Server) -> Iterator[Desk]:
    """
    Give the server of the run, empty.
    """
    desk = Desk(redis_server)
    desk.client.flushall()
    yield desk
    desk.close()


@pytest.fixture
def private() -> Iterator[Callable[..., Desk]]:
    """
    Start servers with settings of their own.
    """
    with ExitStack() as stack:

        def start(**settings: str) -> Desk:
            options = {name.replace("_", "-"): value for name, value in settings.items()}
            stack.enter_context(servers.or_skipped())
            desk = Desk(stack.enter_context(servers.redis(options)))
            stack.callback(desk.close)
            return desk

        yield start


@pytest.fixture
def make() -> Iterator[Callable[..., RedisStreams]]:
    """
    Make publishers that are closed after the test.
    """
    made: list[RedisStreams] = []

    def make(desk: Desk, url: str = "", **options: Any) -> RedisStreams:
        made.append(RedisStreams(url or desk.server.url, **options))
        return made[-1]

    yield make
    for publisher in made:
        publisher.close()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """
    Fail a block that takes longer than a time-out allows.
    """
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert took < seconds + SLACK


def test_a_reader_gets_the_envelope_with_the_library_of_cloudevents(
    desk: Desk, make: Callable[..., RedisStreams]
) -> None:
    """
    Whoever reads the stream gets the event whole, and nothing of ours is needed.
    """
    told = event()

    results = make(desk).publish([told])

    [fields] = desk.read()
    read = JSONFormat().read(None, fields[BODY.encode()])
    assert fates(results) == [Fate.SENT]
    assert read.get_data() == {"total": "1.00", "name": "Žižek"}
    assert (read.get_id(), read.get_type(), read.get_subject(), read.get_source()) == (
        str(told.id),
        TOPIC,
        "7",
        "/shop/order",
    )
    assert (read.get_time(), read.get_extension("sequence")) == (told.occurred_at, "3")
    assert {name: value for name, value in fields.items() if name != BODY.encode()} == {
        b"id": str(told.id).encode(),
        b"topic": TOPIC.encode(),
        b"key": b"7",
    }


def test_a_consumer_group_reads_what_was_published(desk: Desk, make: Callable[..., RedisStreams]) -> None:
    """
    A group that was made before gets each event once.
    """
    desk.client.xgroup_create("events", "mailers", mkstream=True)
    events = [event(), event()]

    make(desk).publish(events)

    answer: Any = desk.client.xreadgroup("mailers", "one", {"events": ">"})
    [(_, entries)] = answer
    assert [fields[b"id"].decode() for _, fields in entries] == ids(events)


def test_events_arrive_in_the_order_of_the_call(desk: Desk, make: Callable[..., RedisStreams]) -> None:
    """
    One stream holds the events of a call in the order they were given, and none twice.
    """
    events = [event(key=str(number)) for number in range(500)]

    results = make(desk).publish(events)

    assert fates(results) == [Fate.SENT] * 500
    assert desk.read_ids() == ids(events)


def test_the_stream_may_be_named_by_the_event(desk: Desk, make: Callable[..., RedisStreams]) -> None:
    """
    The topic and the kind of the object choose the stream.
    """
    paid, moved = event(), event("stock.moved", aggregate="stock.item")

    make(desk, stream="dl:{aggregate}:{topic}").publish([paid, moved])

    assert desk.read_ids(f"dl:shop.order:{TOPIC}") == ids([paid])
    assert desk.read_ids("dl:stock.item:stock.moved") == ids([moved])


def test_a_call_is_no_transaction(desk: Desk, make: Callable[..., RedisStreams]) -> None:
    """
    The entries are written one by one, so that readers and other writers wait for none of it.
    """
    before = (desk.times("multi"), desk.times("xadd"))

    make(desk).publish([event(), event(), event()])

    assert (desk.times("multi"), desk.times("xadd")) == (before[0], before[1] + 3)


def test_nothing_is_trimmed_unless_it_is_asked_for(desk: Desk, make: Callable[..., RedisStreams]) -> None:
    """
    All entries stay by default; with a maximal length, about all older ones go, whether they were read or not.
    """
    events = [event() for _ in range(1000)]

    make(desk).publish(events)
    make(desk, stream="short", maxlen=150).publish(events)

    found = desk.read_ids("short")
    assert desk.client.xlen("events") == 1000
    assert 150 < len(found) < 500
    assert found == ids(events)[-len(found) :]


def test_a_stream_that_is_none_fails_its_events_alone(desk: Desk, make: Callable[..., RedisStreams]) -> None:
    """
    Where the name belongs to another kind of value, the event costs an attempt, and those of other streams arrive.
    """
    desk.client.set("taken", "text")
    others = [event("free"), event("free")]

    results = make(desk, stream="{topic}").publish([others[0], event("taken"), others[1]])

    assert fates(results) == [Fate.SENT, Fate.FAILED, Fate.SENT]
    assert "WRONGTYPE" in results[1].error
    assert desk.read_ids("free") == ids(others)


def test_an_event_without_a_topic_dies_alone(desk: Desk, make: Callable[..., RedisStreams]) -> None:
    """
    What has no envelope is dead, and the events around it arrive.
    """
    others = [event(), event()]

    results = make(desk).publish([others[0], event(""), others[1]])

    assert fates(results) == [Fate.SENT, Fate.DEAD, Fate.SENT]
    assert desk.read_ids() == ids(others)


def test_what_is_not_permitted_costs_an_attempt(desk: Desk, make: Callable[..., RedisStreams]) -> None:
    """
    A user who may write one stream and not the other fails the events of the other.
    """
    desk.client.acl_setuser("writer", enabled=True, passwords=["+pass"], keys=["free"], commands=["+@all"])
    url = desk.server.url.replace("redis://", "redis://writer:pass@")

    results = make(desk, url, stream="{topic}").publish([event("free"), event("other")])

    assert fates(results) == [Fate.SENT, Fate.FAILED]
    assert "NoPermissionError" in results[1].error


def test_credentials_come_by_the_url_or_the_options(desk: Desk, make: Callable[..., RedisStreams]) -> None:
    """
    The right password opens the stream; a wrong one makes all events wait, and says why.
    """
    desk.client.acl_setuser("keeper", enabled=True, passwords=["+pass"], keys=["*"], commands=["+@all"])
    right = make(desk, connection={"username": "keeper", "password": "pass"})
    wrong = make(desk, connection={"username": "keeper", "password": "other"})

    results = right.publish([event()])

    assert fates(results) == [Fate.SENT]
    with pytest.raises(BrokerUnavailable, match="AuthenticationError"):
        wrong.publish([event(), event()])


@pytest.mark.parametrize(
    ("refusing", "taking", "word"),
    [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OutOfMemoryError"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "ReadOnlyError"),
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", "NOREPLICAS"),
    ],
)
def test_a_server_that_takes_nothing_costs_no_attempt(
    desk: Desk, make: Callable[..., RedisStreams], refusing: str, taking: str, word: str
) -> None:
    """
    Full memory, a replica and missing replicas make all events wait until the server takes them.
    """
    publisher = make(desk)
    events = [event(), event()]
    desk.client.execute_command(*refusing.split())
    try:
        during = publisher.publish(events)
    finally:
        desk.client.execute_command(*taking.split())
    after = publisher.publish(events)

    assert fates(during) == [Fate.UNAVAILABLE, Fate.UNAVAILABLE]
    assert word in during[0].error
    assert fates(after) == [Fate.SENT, Fate.SENT]
    assert desk.read_ids() == ids(events)


def test_a_server_that_can_not_save_costs_no_attempt(
    private: Callable[..., Desk], make: Callable[..., RedisStreams]
) -> None:
    """
    A server that takes nothing, since its last snapshot failed, makes all events wait.
    """
    desk = private(save="3600 1000000")
    (desk.server.folder / "dump.rdb").mkdir()
    desk.client.bgsave()
    desk.server.wait(lambda: desk.client.info("persistence")["rdb_last_bgsave_status"] == "err")

    results = make(desk).publish([event()])

    assert fates(results) == [Fate.UNAVAILABLE]
    assert "MISCONF" in results[0].error


def test_a_server_that_is_busy_costs_no_attempt(
    private: Callable[..., Desk], make: Callable[..., RedisStreams]
) -> None:
    """
    A script that does not end makes all events wait.
    """
    desk = private(busy_reply_threshold="50")

    def loop() -> None:
        other = Desk(desk.server)
        with pytest.raises(redis.ResponseError, match="killed"):
            other.client.eval("while true do end", 0)
        other.close()

    looping = threading.Thread(target=loop)
    looping.start()
    try:
        desk.server.wait(lambda: "BUSY" in desk.complaint())
        results = make(desk).publish([event()])
    finally:
        desk.client.script_kill()
        looping.join()

    assert fates(results) == [Fate.UNAVAILABLE]
    assert "BUSY" in results[0].error


def test_a_cluster_that_is_down_costs_no_attempt(
    private: Callable[..., Desk], make: Callable[..., RedisStreams]
) -> None:
    """
    A node of a cluster whose slots nobody serves makes all events wait.
    """
    desk = private(cluster_enabled="yes", cluster_port=str(servers.free_port()))

    results = make(desk).publish([event()])

    assert fates(results) == [Fate.UNAVAILABLE]
    assert "Hash slot not served" in results[0].error


def test_a_server_that_is_loading_costs_no_attempt(
    private: Callable[..., Desk], make: Callable[..., RedisStreams]
) -> None:
    """
    A server that reads its data after a start makes all events wait, and takes them when it is done.
    """
    desk = private(loading_process_events_interval_bytes="1024", key_load_delay="10000")
    publisher = make(desk)
    publisher.publish([event()])
    desk.client.mset({f"key-{number}": os.urandom(4096) for number in range(300)})
    desk.client.save()
    desk.server.kill()
    desk.server.start()
    events = [event(), event()]

    with pytest.raises(BrokerUnavailable, match="BusyLoadingError"):
        publisher.publish(events)
    desk.wait()
    results = publisher.publish(events)

    assert fates(results) == [Fate.SENT, Fate.SENT]
    assert desk.read_ids()[1:] == ids(events)


def test_all_that_is_sent_survives_a_crash_in_the_middle(
    private: Callable[..., Desk], make: Callable[..., RedisStreams]
) -> None:
    """
    A server that writes each command down is killed under a thousand publishes: what counts as sent is there.
    """
    desk = private(appendonly="yes", appendfsync="always")
    publisher = make(desk)
    sent: list[str] = []
    is_up = threading.Event()
    broken = 0

    def crash() -> None:
        desk.server.kill()
        desk.server.start()
        desk.wait()
        is_up.set()

    crashing = threading.Thread(target=crash)
    deadline = time.monotonic() + 2 * servers.PATIENCE
    while len(sent) < 2000 or not broken:
        assert time.monotonic() < deadline
        events = [event(key=str(number)) for number in range(20)]
        try:
            results = publisher.publish(events)
        except BrokerUnavailable:
            broken += 1
            assert is_up.wait(servers.PATIENCE)
            continue
        sent += [str(told.id) for told, result in zip(events, results, strict=True) if result.fate is Fate.SENT]
        if len(sent) >= 800 and not crashing.ident:
            crashing.start()
    crashing.join()

    found = set(desk.read_ids())
    assert broken > 0
    assert [name for name in sent if name not in found] == []


def test_the_same_publisher_works_when_the_server_is_back(
    private: Callable[..., Desk], make: Callable[..., RedisStreams]
) -> None:
    """
    While the server is away nothing is sent and no time is lost; then the first publish arrives.
    """
    desk = private()
    events = [event(), event()]
    publisher = make(desk)
    publisher.publish([event()])

    desk.server.kill()
    with within(0), pytest.raises(BrokerUnavailable):
        publisher.publish(events)
    with within(0), pytest.raises(BrokerUnavailable, match="refused"):
        publisher.publish(events)
    desk.server.start()
    results = publisher.publish(events)

    assert fates(results) == [Fate.SENT, Fate.SENT]
    assert desk.read_ids() == ids(events)


def test_the_first_publish_after_a_restart_arrives(
    private: Callable[..., Desk], make: Callable[..., RedisStreams]
) -> None:
    """
    An idle publisher whose server was restarted delivers its first event.
    """
    desk = private()
    publisher = make(desk)
    publisher.publish([event()])
    desk.server.stop()
    desk.server.start()
    told = event()

    results = publisher.publish([told])

    assert fates(results) == [Fate.SENT]
    assert desk.read_ids() == ids([told])


def test_an_answer_that_comes_late_counts_for_nothing_else(desk: Desk, make: Callable[..., RedisStreams]) -> None:
    """
    After a time-out, late answers do not pass for those of the next call.
    """
    desk.client.set("taken", "text")
    publisher = make(desk, stream="{topic}", timeout=SHORT)
    publisher.publish([event()])
    with desk.server.frozen(), within(SHORT), pytest.raises(BrokerUnavailable, match="Timeout"):
        publisher.publish([event(), event()])

    results = publisher.publish([event("taken"), event()])

    assert fates(results) == [Fate.FAILED, Fate.SENT]


def test_a_publish_that_is_interrupted_confirms_nothing_later(desk: Desk, make: Callable[..., RedisStreams]) -> None:
    """
    An exception from outside ends the wait, and the answer it waited for does not pass for that to the next event.
    """
    desk.client.set("taken", "text")
    publisher = make(desk, stream="{topic}")
    publisher.publish([event()])

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with desk.server.frozen():
            signal.setitimer(signal.ITIMER_REAL, SHORT)
            with pytest.raises(KeyboardInterrupt):
                publisher.publish([event()])
    finally:
        signal.signal(signal.SIGALRM, before)
    results = publisher.publish([event("taken"), event()])

    assert fates(results) == [Fate.FAILED, Fate.SENT]


@pytest.mark.parametrize("hole", [servers.silent, servers.blackhole])
def test_an_address_that_does_not_answer_costs_one_time_out(hole: Callable[[], Any]) -> None:
    """
    Neither a host that takes no connection nor one that says nothing holds a publish up beyond the time-out.
    """
    with hole() as port:
        publisher = RedisStreams(f"redis://127.0.0.1:{port}", timeout=SHORT)

        with within(SHORT), pytest.raises(BrokerUnavailable, match="Timeout"):
            publisher.publish([event()])

        publisher.close()


def test_the_library_tries_once() -> None:
    """
    A server that breaks off is not asked again in the same call, since trying again is the relay's.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        met: list[socket.socket] = []

        def break_off() -> None:
            while True:
                try:
                    met.append(listener.accept()[0])
                except OSError:
                    return
                met[-1].close()

        answering = threading.Thread(target=break_off)
        answering.start()
        publisher = RedisStreams(f"redis://127.0.0.1:{listener.getsockname()[1]}")

        with pytest.raises(BrokerUnavailable):
            publisher.publish([event()])

        publisher.close()
        listener.shutdown(socket.SHUT_RDWR)
        answering.join()
        assert len(met) == 1


def test_one_connection_is_kept_and_none_is_left(desk: Desk, make: Callable[..., RedisStreams]) -> None:
    """
    Nothing is connected before the first call, all calls share one socket, and a closed publisher has none.
    """
    port = desk.server.port
    desk.close()
    publisher = make(desk)
    before = servers.sockets_to(port)
    publisher.publish([event()])
    first = servers.sockets_to(port)
    publisher.publish([event(), event()])
    second = servers.sockets_to(port)

    publisher.close()

    after = servers.sockets_to(port)
    assert (before, len(first), after) == ([], 1, [])
    assert second == first
    publisher.publish([event()])
    assert len(desk.read()) == 4


def test_no_socket_is_left_after_a_time_out(desk: Desk, make: Callable[..., RedisStreams]) -> None:
    """
    A connection whose server says nothing is closed on our side.
    """
    desk.close()
    publisher = make(desk, timeout=SHORT)
    publisher.publish([event()])

    with desk.server.frozen():
        with pytest.raises(BrokerUnavailable):
            publisher.publish([event()])
        left = servers.sockets_to(desk.server.port)

    assert left == []


def test_tls_comes_with_the_url_and_the_options(
    tmp_path: Path, private: Callable[..., Desk], make: Callable[..., RedisStreams]
) -> None:
    """
    A publisher given a certificate to trust sends over TLS; one without refuses the server, and sends nothing.
    """
    with servers.or_skipped():
        made, key = servers.certificate(tmp_path)
    port = servers.free_port()
    files = {"tls_cert_file": str(made), "tls_key_file": str(key), "tls_ca_cert_file": str(made)}
    desk = private(tls_port=str(port), tls_auth_clients="no", **files)
    url = f"rediss://127.0.0.1:{port}"
    told = event()

    results = make(desk, url, connection={"ssl_ca_certs": str(made)}).publish([told])

    with pytest.raises(BrokerUnavailable, match="certificate verify failed"):
        make(desk, url).publish([event()])
    assert fates(results) == [Fate.SENT]
    assert desk.read_ids() == ids([told])


@pytest.mark.parametrize(
    ("option", "options"),
    [
        ("url", {"url": ""}),
        ("url", {"url": "amqp://127.0.0.1"}),
        ("url", {"url": "redis://127.0.0.1:none"}),
        ("stream", {"stream": ""}),
        ("stream", {"stream": "{key}"}),
        ("maxlen", {"maxlen": 0}),
        ("maxlen", {"maxlen": True}),
        ("maxlen", {"maxlen": "100"}),
        ("timeout", {"timeout": 0}),
        ("timeout", {"timeout": 10**400}),
        ("timeout", {"timeout": None}),
        ("connection", {"connection": ["ssl"]}),
        ("connection", {"connection": {"pasword": "x"}}),
        ("connection", {"connection": {"ssl_ca_certs": "x"}}),
        ("connection", {"connection": {"single_connection_client": True}}),
        ("connection", {"connection": {"retry": None}}),
        ("connection", {"connection": {"socket_timeout": None}}),
    ],
)
def test_a_wrong_option_is_refused_at_once(option: str, options: dict[str, Any]) -> None:
    """
    A publisher that could not work is not made, and the setting is named.
    """
    with pytest.raises(ImproperlyConfigured, match=rf"OUTBOX_PUBLISHERS.*option '{option}' of RedisStreams"):
        RedisStreams(**{"url": "redis://127.0.0.1", **options})


@pytest.mark.parametrize("url", ["amqp://user:secret@localhost", "user:secret@localhost", "redis://user:secret/1@a"])
def test_a_refusal_does_not_tell_the_password(url: str) -> None:
    """
    A wrong URL is named without what may be secret in it.
    """
    with pytest.raises(ImproperlyConfigured, match="option 'url'") as refused:
        RedisStreams(url)

    assert "secret" not in "".join(traceback.format_exception(refused.value))
