"""
Events go to RabbitMQ, and only what a queue of a real broker has taken counts as sent.
"""

from __future__ import annotations

import signal
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
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
    import kombu
    from cloudevents.core.bindings.rabbitmq import RabbitMQMessage, from_rabbitmq
    from cloudevents.core.formats.json import JSONFormat

    from django_logic.outbox.publishers.rabbitmq import KEY_HEADER, RabbitMQ
except ModuleNotFoundError as missing:
    if are_required():
        raise
    pytest.skip(f"{missing.name} was not found. Install django-logic[rabbitmq].", allow_module_level=True)

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
    Read, with kombu alone, what arrived at one exchange of its own.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.exchange = f"events-{uuid4().hex}"
        self.queue = f"{self.exchange}-all"

    def bind(self, key: str = "#", kind: str = "topic", name: str = "", **arguments: Any) -> str:
        """
        Declare a queue that survives a restart, and bind it to the exchange.
        """
        exchange = kombu.Exchange(self.exchange, kind, durable=True, arguments=arguments.pop("exchange", None))
        name = name or self.queue
        with kombu.Connection(self.server.url) as connection:
            queue = kombu.Queue(name, exchange, routing_key=key, durable=True, queue_arguments=arguments)
            queue(connection.channel()).declare()
        return name

    def start(self) -> None:
        """
        Start the killed broker again, and bind the queue anew: of sixty that were killed right after a binding five
        came back with the exchange and the queue, and for good without what binds them.
        """
        self.server.start()
        self.bind()

    def read(self, queue: str = "") -> list[Any]:
        """
        Take all messages out of a queue.
        """
        with kombu.Connection(self.server.url) as connection:
            source = kombu.Queue(queue or self.queue)(connection.channel())
            return list(iter(lambda: source.get(no_ack=True), None))

    def read_ids(self, queue: str = "") -> list[str]:
        """
        Take all messages out of a queue, and return their identities.
        """
        return [message.properties["message_id"] for message in self.read(queue)]


@pytest.fixture
def desk(rabbitmq_server: Server) -> Desk:
    """
    Give an exchange of the test's own, with a queue for all of its events.
    """
    desk = Desk(rabbitmq_server)
    desk.bind()
    return desk


@pytest.fixture
def make(rabbitmq_server: Server, desk: Desk) -> Iterator[Callable[..., RabbitMQ]]:
    """
    Make publishers that are closed after the test.
    """
    made: list[RabbitMQ] = []

    def make(url: str = "", **options: Any) -> RabbitMQ:
        made.append(RabbitMQ(url or rabbitmq_server.url, **{"exchange": desk.exchange, **options}))
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


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_a_consumer_reads_the_envelope_with_the_library_of_cloudevents(
    desk: Desk, make: Callable[..., RabbitMQ], mode: str
) -> None:
    """
    Whoever reads the queue gets the event whole, in either mode, and nothing of ours is needed.
    """
    told = event()

    results = make(mode=mode).publish([told])

    [message] = desk.read()
    body = message.body if isinstance(message.body, bytes) else message.body.encode()
    read = from_rabbitmq(
        RabbitMQMessage(headers=message.headers, content_type=message.content_type, body=body), JSONFormat()
    )
    assert fates(results) == [Fate.SENT]
    assert read.get_data() == {"total": "1.00", "name": "Žižek"}
    assert (read.get_id(), read.get_type(), read.get_subject(), read.get_source()) == (
        str(told.id),
        TOPIC,
        "7",
        "/shop/order",
    )
    assert (read.get_time(), read.get_extension("sequence")) == (told.occurred_at, "3")
    assert message.headers[KEY_HEADER] == "7"
    assert message.properties["message_id"] == str(told.id)
    assert message.properties["delivery_mode"] == 2
    assert message.delivery_info["routing_key"] == TOPIC


def test_the_content_type_tells_the_mode(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    A whole envelope is announced as such, and a bare payload as JSON.
    """
    make().publish([event()])
    make(mode="binary").publish([event()])

    found = [message.content_type for message in desk.read()]

    assert found == ["application/cloudevents+json", "application/json"]


def test_events_arrive_in_the_order_of_the_call(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    One queue holds the events of a call in the order they were given.
    """
    events = [event(key=str(number)) for number in range(100)]

    results = make().publish(events)

    assert fates(results) == [Fate.SENT] * 100
    assert desk.read_ids() == ids(events)


def test_a_hash_exchange_finds_the_key(rabbitmq_server: Server) -> None:
    """
    An exchange that hashes the header with the key sends all events of a key to one queue, and uses several.
    """
    desk = Desk(rabbitmq_server)
    hashing = {"hash-header": KEY_HEADER}
    queues = [
        desk.bind("1", "x-consistent-hash", name=f"{desk.exchange}-{number}", exchange=hashing) for number in range(3)
    ]
    publisher = RabbitMQ(rabbitmq_server.url, exchange=desk.exchange, declare=False)

    results = [publisher.publish([event(key=str(key)) for key in range(20)]) for _ in range(3)]
    publisher.close()

    keys = [[message.headers[KEY_HEADER] for message in desk.read(queue)] for queue in queues]
    assert [fates(some) for some in results] == [[Fate.SENT] * 20] * 3
    assert sorted(key for found in keys for key in set(found)) == sorted(str(key) for key in range(20))
    assert all(found.count(key) == 3 for found in keys for key in found)
    assert sum(bool(found) for found in keys) > 1


def test_an_event_that_no_queue_takes_is_not_sent(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    What comes back costs an attempt, the events around it arrive, and a later binding lets it through.
    """
    desk = Desk(desk.server)
    queue = desk.bind("shop.#")
    lost = event("stock.item.moved")
    others = [event(), event()]
    publisher = make(exchange=desk.exchange)

    results = publisher.publish([others[0], lost, others[1]])
    desk.bind("stock.#")
    again = publisher.publish([lost])

    assert fates(results) == [Fate.SENT, Fate.FAILED, Fate.SENT]
    assert "'stock.item.moved'" in results[1].error
    assert "NO_ROUTE" in results[1].error
    assert fates(again) == [Fate.SENT]
    assert desk.read_ids(queue) == ids([*others, lost])


def test_the_confirm_of_what_came_back_counts_for_nothing_else(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    After an event came back, the next one is sent only when it is confirmed itself.
    """
    desk = Desk(desk.server)
    desk.bind("shop.#")
    publisher = make(exchange=desk.exchange, confirm_timeout=SHORT)
    publisher.publish([event("stock.item.moved")])

    with desk.server.frozen(), pytest.raises(BrokerUnavailable):
        publisher.publish([event()])


def test_a_word_that_comes_late_counts_for_nothing_else(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    After a time-out, the broker's late word on that event does not pass for its word on the next one.
    """
    desk = Desk(desk.server)
    desk.bind("shop.#")
    publisher = make(exchange=desk.exchange, confirm_timeout=SHORT)
    publisher.publish([event()])
    with desk.server.frozen():
        with within(SHORT), pytest.raises(BrokerUnavailable):
            publisher.publish([event("stock.item.moved")])

        with desk.server.thawing(SHORT / 4):
            results = publisher.publish([event(), event("stock.item.moved")])

    assert fates(results) == [Fate.SENT, Fate.FAILED]


def test_a_publish_that_is_interrupted_tells_nothing_later(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    After an exception from outside, what it kept from being read does not pass for the word on the next event.
    """
    desk = Desk(desk.server)
    desk.bind("shop.#")
    publisher = make(exchange=desk.exchange)
    publisher.publish([event()])

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with desk.server.frozen():
            signal.setitimer(signal.ITIMER_REAL, SHORT)
            with pytest.raises(KeyboardInterrupt):
                publisher.publish([event("stock.item.moved")])
            with desk.server.thawing(SHORT / 4):
                results = publisher.publish([event(), event("stock.item.moved")])
    finally:
        signal.signal(signal.SIGALRM, before)

    assert fates(results) == [Fate.SENT, Fate.FAILED]


def test_a_nack_costs_an_attempt(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    A full queue that refuses an event fails this event, and no other.
    """
    full = Desk(desk.server)
    full.bind("shop.#", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    full.bind("stock.#", name=f"{full.exchange}-free")
    publisher = make(exchange=full.exchange)

    results = publisher.publish([event(), event(), event("stock.item.moved")])

    assert fates(results) == [Fate.SENT, Fate.FAILED, Fate.SENT]
    assert "nack" in results[1].error


def test_what_can_never_be_delivered_is_dead(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    An event that the broker or the protocol finds too large dies alone.
    """
    good = [event(), event()]
    large = event(payload={"text": "x" * servers.LARGEST_MESSAGE})
    long = event("ž" * 128)

    results = make().publish([good[0], large, long, event(""), good[1]])

    assert fates(results) == [Fate.SENT, Fate.DEAD, Fate.DEAD, Fate.DEAD, Fate.SENT]
    assert "larger than configured max size" in results[1].error
    assert "255 bytes" in results[2].error
    assert desk.read_ids() == ids(good)


def test_all_that_is_sent_survives_a_crash_in_the_middle(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    A broker is killed under more than a thousand publishes and started again: what counts as sent is in the queue.
    """
    publisher = make()
    sent: list[str] = []
    is_up = threading.Event()
    broken = 0

    def crash() -> None:
        desk.server.kill()
        desk.start()
        is_up.set()

    crashing = threading.Thread(target=crash)
    deadline = time.monotonic() + 2 * servers.PATIENCE
    given = 0
    while len(sent) < 1200:
        assert time.monotonic() < deadline
        events = [event(key=str(number)) for number in range(20)]
        given += len(events)
        try:
            results = publisher.publish(events)
        except BrokerUnavailable:
            results = []
        sent += [str(told.id) for told, result in zip(events, results, strict=False) if result.fate is Fate.SENT]
        if not results or results[-1].fate is Fate.UNAVAILABLE:
            broken += 1
            assert is_up.wait(servers.PATIENCE)
        if len(sent) >= 500 and not crashing.ident:
            crashing.start()
    crashing.join()

    found = set(desk.read_ids())
    assert broken > 0
    assert given > 1200
    assert [name for name in sent if name not in found] == []


def test_the_same_publisher_works_when_the_broker_is_back(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    While the broker is away nothing is sent and no time is lost; then the first publish arrives.
    """
    first, second, third = event(), event(), event()
    publisher = make(confirm_timeout=SHORT)
    publisher.publish([first])

    desk.server.kill()
    with within(0), pytest.raises(BrokerUnavailable):
        publisher.publish([second])
    with within(0), pytest.raises(BrokerUnavailable, match="refused"):
        publisher.publish([second])
    desk.start()
    results = publisher.publish([second, third])

    assert fates(results) == [Fate.SENT, Fate.SENT]
    assert desk.read_ids() == ids([first, second, third])


def test_the_first_publish_after_a_restart_is_not_lost(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    An idle publisher whose broker was restarted says that its first event did not arrive, and sends the next.
    """
    publisher = make(confirm_timeout=SHORT)
    publisher.publish([event()])
    desk.server.kill()
    desk.start()
    desk.read()
    told = event()

    with pytest.raises(BrokerUnavailable):
        publisher.publish([told])
    results = publisher.publish([told])

    assert fates(results) == [Fate.SENT]
    assert desk.read_ids() == ids([told])


def test_the_rest_of_a_call_is_unavailable_when_the_broker_falls_silent(
    desk: Desk, make: Callable[..., RabbitMQ]
) -> None:
    """
    What was confirmed stays sent, what could never be is dead, and the rest costs no attempt and one wait in all.
    """
    publisher = make(confirm_timeout=SHORT)
    publisher.publish([event()])
    events = [event(), event("x" * 300), event(), event(), event()]

    with ExitStack() as stack, within(SHORT):

        class Freezing(list[Event]):
            def __iter__(self) -> Iterator[Event]:
                yield from self[:2]
                stack.enter_context(desk.server.frozen())
                yield from self[2:]

        results = publisher.publish(Freezing(events))

    assert fates(results) == [Fate.SENT, Fate.DEAD, Fate.UNAVAILABLE, Fate.UNAVAILABLE, Fate.UNAVAILABLE]
    assert "has not confirmed" in results[2].error
    assert str(events[0].id) in desk.read_ids()


@pytest.mark.parametrize("hole", [servers.silent, servers.blackhole])
def test_an_address_that_does_not_answer_costs_one_time_out(hole: Callable[[], Any]) -> None:
    """
    Neither a host that takes no connection nor one that says nothing holds a publish up beyond the time-out.
    """
    with hole() as port:
        publisher = RabbitMQ(f"amqp://127.0.0.1:{port}//", connection={"connect_timeout": SHORT})

        with within(SHORT), pytest.raises(BrokerUnavailable, match="timed out"):
            publisher.publish([event()])

        publisher.close()


def test_a_broker_that_freezes_while_we_connect_costs_one_time_out(
    desk: Desk, make: Callable[..., RabbitMQ], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Also the steps after the handshake end within the time-out.
    """
    publisher = make(confirm_timeout=SHORT)
    with_connection = kombu.Connection.ensure_connection
    freezing: list[Any] = []

    def connect_and_freeze(connection: Any, *args: Any, **options: Any) -> Any:
        made = with_connection(connection, *args, **options)
        freezing.append(desk.server.frozen())
        freezing[-1].__enter__()
        return made

    monkeypatch.setattr(kombu.Connection, "ensure_connection", connect_and_freeze)
    try:
        with within(SHORT), pytest.raises(BrokerUnavailable, match="timed out"):
            publisher.publish([event()])
    finally:
        for frozen in freezing:
            frozen.__exit__(None, None, None)


def test_another_broker_of_the_url_takes_over(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    Where the first broker of several does not answer, the next one gets the event in the same call.
    """
    away = f"amqp://guest:guest@127.0.0.1:{servers.free_port()}//"
    told = event()

    with within(0):
        results = make(f"{away};{desk.server.url}").publish([told])

    assert fates(results) == [Fate.SENT]
    assert desk.read_ids() == ids([told])


def test_a_broker_that_does_not_know_us_costs_no_attempt(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    A wrong password makes all events wait, and says why.
    """
    publisher = make(desk.server.url.replace("guest:guest", "guest:wrong"))

    with pytest.raises(BrokerUnavailable, match="ACCESS_REFUSED"):
        publisher.publish([event()])


def test_an_option_that_the_library_refuses_late_costs_no_attempt(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    What is found to be wrong while connecting is no event's fault.
    """
    publisher = make(connection={"login_method": "CHARM"})

    with pytest.raises(BrokerUnavailable, match="CHARM"):
        publisher.publish([event()])


def test_an_exchange_of_another_type_costs_no_attempt(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    An exchange that is there already, and is not what we declare, kills no event.
    """
    with pytest.raises(BrokerUnavailable, match="PRECONDITION_FAILED"):
        make(exchange_type="fanout").publish([event()])


def test_a_missing_exchange_costs_no_attempt(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    Where the exchange is somebody else's to declare, events wait until it is there.
    """
    later = Desk(desk.server)
    publisher = make(exchange=later.exchange, declare=False)
    with pytest.raises(BrokerUnavailable, match="no exchange"):
        publisher.publish([event()])
    later.bind()

    results = publisher.publish([event()])

    assert fates(results) == [Fate.SENT]


def test_the_exchange_we_declare_survives_a_restart(rabbitmq_server: Server, make: Callable[..., RabbitMQ]) -> None:
    """
    The exchange is durable, and of the type that was asked for.
    """
    name = f"events-{uuid4().hex}"

    make(exchange=name, exchange_type="headers").publish([event()])

    with kombu.Connection(rabbitmq_server.url) as connection:
        channel = connection.channel()
        # The broker refuses a declaration that differs from what is there.
        kombu.Exchange(name, "headers", durable=True)(channel).declare()


def test_one_connection_is_kept_and_none_is_left(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    Nothing is connected before the first call, all calls share one socket, and a closed publisher has none.
    """
    port = desk.server.port
    publisher = make()
    before = servers.sockets_to(port)
    publisher.publish([event()])
    first = servers.sockets_to(port)
    publisher.publish([event(), event()])
    second = servers.sockets_to(port)

    publisher.close()

    assert before == []
    assert len(first) == 1
    assert servers.sockets_to(port) == []
    assert second == first
    publisher.publish([event()])
    assert len(desk.read()) == 4


def test_no_socket_is_left_when_the_broker_breaks_off(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    A connection that broke, and one whose broker says nothing, are closed on our side.
    """
    publisher = make(confirm_timeout=SHORT)
    publisher.publish([event()])
    with desk.server.frozen():
        with pytest.raises(BrokerUnavailable):
            publisher.publish([event()])
        after_the_time_out = servers.sockets_to(desk.server.port)
    publisher.publish([event()])
    with desk.server.frozen(), within(SHORT):
        publisher.close()
        after_the_close = servers.sockets_to(desk.server.port)

    assert (after_the_time_out, after_the_close) == ([], [])


def test_tls_comes_with_the_url_and_the_options(tmp_path: Path) -> None:
    """
    A publisher given a certificate to trust sends over TLS; one without refuses the broker, and sends nothing.
    """
    port = servers.free_port()
    with servers.or_skipped():
        made, key = servers.certificate(tmp_path)
    listening = {"listeners.ssl.default": f"127.0.0.1:{port}", "ssl_options.verify": "verify_none"}
    files = {"ssl_options.cacertfile": made, "ssl_options.certfile": made, "ssl_options.keyfile": key}
    settings = {**listening, **{name: str(path) for name, path in files.items()}}
    with servers.or_skipped(), servers.rabbitmq(settings) as server:
        desk = Desk(server)
        desk.bind()
        url = f"amqps://guest:guest@127.0.0.1:{port}//"
        trusting = {"ca_certs": str(made), "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": "127.0.0.1"}
        publisher = RabbitMQ(url, exchange=desk.exchange, confirm_timeout=SHORT, connection={"ssl": trusting})
        doubting = RabbitMQ(url, exchange=desk.exchange, connection={"ssl": {"cert_reqs": ssl.CERT_REQUIRED}})

        results = publisher.publish([event(), event()])
        with pytest.raises(BrokerUnavailable, match="certificate verify failed"):
            doubting.publish([event()])
        with server.frozen(), within(2 * SHORT), pytest.raises(BrokerUnavailable):
            publisher.publish([event()])
        again = publisher.publish([event()])

        assert fates([*results, *again]) == [Fate.SENT] * 3
        publisher.close()
        doubting.close()
        assert servers.sockets_to(port) == []


@pytest.mark.parametrize(
    ("option", "options"),
    [
        ("url", {"url": ""}),
        ("url", {"url": "redis://127.0.0.1"}),
        ("url", {"url": "amqp://127.0.0.1;memory://"}),
        ("url", {"url": "127.0.0.1:5672"}),
        ("url", {"url": "amqp://127.0.0.1:none//"}),
        ("exchange", {"exchange": ""}),
        ("exchange_type", {"exchange_type": None}),
        ("mode", {"mode": "text"}),
        ("confirm_timeout", {"confirm_timeout": 0}),
        ("confirm_timeout", {"confirm_timeout": None}),
        ("connection", {"connection": ["ssl"]}),
        ("connection", {"connection": {"conect_timeout": 1}}),
        ("connection", {"connection": {"transport": "memory"}}),
        ("connection", {"connection": {"heartbeat": 10}}),
    ],
)
def test_a_wrong_option_is_refused_at_once(option: str, options: dict[str, Any]) -> None:
    """
    A publisher that could not work is not made, and the setting is named.
    """
    with pytest.raises(ImproperlyConfigured, match=rf"OUTBOX_PUBLISHERS.*option '{option}' of RabbitMQ"):
        RabbitMQ(**{"url": "amqp://127.0.0.1//", **options})


@pytest.mark.parametrize("url", ["redis://user:secret@localhost", "user:secret@localhost", "amqp://user:secret/1@a"])
def test_a_refusal_does_not_tell_the_password(url: str) -> None:
    """
    A wrong URL is named without what may be secret in it.
    """
    with pytest.raises(ImproperlyConfigured, match="option 'url'") as refused:
        RabbitMQ(url)

    assert "secret" not in "".join(traceback.format_exception(refused.value))


def test_confirms_can_not_be_switched_off(desk: Desk, make: Callable[..., RabbitMQ]) -> None:
    """
    Options for the transport are passed on, but for the one that would make losses invisible.
    """
    given = {"confirm_publish": False, "client_properties": {"connection_name": "relay"}}
    publisher = make(confirm_timeout=SHORT, connection={"transport_options": given})
    publisher.publish([event()])

    with desk.server.frozen(), pytest.raises(BrokerUnavailable):
        publisher.publish([event()])
