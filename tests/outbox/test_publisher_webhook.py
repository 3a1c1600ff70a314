"""
Prove that a webhook gets each event signed, that its answers mean what they should, and that wrong options are told.
"""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_logic.outbox.publishers import Fate
from tests.outbox.receivers import HOST, PATIENCE, Handler, Internet, Receiver, receiving, wait_for
from tests.outbox.webhooks import (
    FIXTURES,
    FORMAT,
    INSIDE,
    NAME,
    NEW,
    OLD,
    STRANGE,
    HTTPMessage,
    Make,
    Verifier,
    Webhook,
    WebhookVerificationError,
    as_cloud_event,
    error_of,
    event,
    fates,
    from_http,
)

pytest_plugins = [FIXTURES]


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_webhook_posts_a_signed_cloud_event(mode: str, receiver: Receiver, webhook: Make) -> None:
    """
    A receiver verifies the body with the library of Standard Webhooks, and reads the event with that of CloudEvents.
    """
    sent = event(sequence=3, traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")

    assert fates(webhook(mode=mode), sent) == [Fate.SENT]

    (request,) = receiver.requests
    Verifier(OLD).verify(request.body, dict(request.headers))
    found = from_http(HTTPMessage(dict(request.headers), request.body), FORMAT)
    types = {"structured": "application/cloudevents+json", "binary": "application/json"}
    assert (request.method, request.headers["webhook-id"]) == ("POST", str(sent.id))
    assert request.headers["content-type"] == types[mode]
    assert found.get_attributes() == as_cloud_event(sent).get_attributes()
    assert found.get_data() == {"name": "Ærø"}


def test_receiver_verifies_with_either_secret_during_a_rotation(receiver: Receiver, webhook: Make) -> None:
    """
    With two secrets whoever knows the old or the new one verifies, and nobody else.
    """
    assert fates(webhook(secrets=[NEW, OLD]), event()) == [Fate.SENT]

    (request,) = receiver.requests
    assert len(request.headers["webhook-signature"].split(" ")) == 2
    for secret in (NEW, OLD):
        Verifier(secret).verify(request.body, dict(request.headers))
    with pytest.raises(WebhookVerificationError):
        Verifier(STRANGE).verify(request.body, dict(request.headers))


def test_each_attempt_is_signed_for_its_own_time(receiver: Receiver, webhook: Make) -> None:
    """
    An old event is signed with the time of its posting, as receivers refuse signatures older than minutes.
    """
    late = event(occurred_at=datetime(2020, 1, 1, tzinfo=UTC))

    assert fates(webhook(), late) == [Fate.SENT]

    (request,) = receiver.requests
    assert abs(datetime.now(UTC).timestamp() - int(request.headers["webhook-timestamp"])) < 60


def test_events_go_over_one_connection_in_their_order(receiver: Receiver, webhook: Make) -> None:
    """
    Calls share a connection, whatever the receiver answers.
    """
    publisher = webhook()
    receiver.answer = lambda handler: handler.reply(200 if len(receiver.requests) % 2 else 500, b"x" * 50_000)
    events = [event() for _ in range(4)]

    found = fates(publisher, *events[:3]) + fates(publisher, events[3])

    assert found == [Fate.SENT, Fate.FAILED, Fate.SENT, Fate.FAILED]
    assert [request.headers["webhook-id"] for request in receiver.requests] == [str(each.id) for each in events]
    assert len({request.peer for request in receiver.requests}) == 1


def test_closing_leaves_no_connection(receiver: Receiver, webhook: Make) -> None:
    """
    After close() the receiver has no connection any more, and a later call connects again.
    """
    publisher = webhook()
    assert fates(publisher, event()) == [Fate.SENT]
    assert len(receiver.connections) == 1

    publisher.close()

    wait_for(lambda: not receiver.connections, "the end of the connection")
    assert fates(publisher, event()) == [Fate.SENT]


def test_webhook_connects_to_nothing_before_the_first_event(internet: Internet, outside: Make) -> None:
    """
    Making, closing and publishing nothing looks no name up.
    """
    publisher = outside()

    publisher.close()

    assert list(publisher.publish([])) == []
    assert (internet.lookups, internet.connected) == ([], [])


def test_url_is_called_as_it_is_written(receiver: Receiver, webhook: Make) -> None:
    """
    Nothing of a path or a query gets lost, and a name and a password in the URL log in.
    """
    publisher = webhook(url=receiver.url(f"ann:secret@{HOST}", "/a;b=c/d;e=f%2F?g=h&&i=?"))

    assert fates(publisher, event()) == [Fate.SENT]

    (request,) = receiver.requests
    assert request.path == "/a;b=c/d;e=f%2F?g=h&&i=?"
    assert request.headers["authorization"] == "Basic YW5uOnNlY3JldA=="


def test_cookies_are_not_sent_back(receiver: Receiver, webhook: Make) -> None:
    """
    A receiver leaves nothing behind that the next request would carry.
    """
    receiver.answer = lambda handler: handler.reply(200, Set_Cookie="seen=1")

    assert fates(webhook(), event(), event()) == [Fate.SENT, Fate.SENT]

    assert [request.headers.get("cookie") for request in receiver.requests] == [None, None]


def test_event_that_can_not_be_written_is_dead(receiver: Receiver, webhook: Make) -> None:
    """
    An event without a topic, and one that is no JSON, keep nothing behind them from going out.
    """
    found = fates(webhook(), event(topic=""), event(payload={"total": object()}), event())

    assert found == [Fate.DEAD, Fate.DEAD, Fate.SENT]
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("status", "fate"),
    [
        *((status, Fate.SENT) for status in (200, 201, 202, 204, 299)),
        (410, Fate.DEAD),
        *((status, Fate.FAILED) for status in (300, 301, 302, 303, 304, 307, 308)),
        *((status, Fate.FAILED) for status in (400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 425)),
        *((status, Fate.FAILED) for status in (500, 501, 505, 507)),
        *((status, Fate.UNAVAILABLE) for status in (429, 502, 503, 504)),
    ],
)
def test_status_decides_the_fate(status: int, fate: Fate, receiver: Receiver, webhook: Make) -> None:
    """
    2xx means that it has arrived, 410 that nothing ever will, some that nothing is taken for now, and all else that
    another attempt may help.
    """
    receiver.answer = lambda handler: handler.reply(status)

    assert fates(webhook(), event()) == [fate]


def test_failed_answer_is_told_in_one_line(receiver: Receiver, webhook: Make) -> None:
    """
    The first words of an answer are kept as text that any database takes, whatever bytes they are.
    """
    receiver.answer = lambda handler: handler.reply(422, b"no \x00\xff\r\n\x1b[31m such order " + b"!" * 1000)

    fate, error = error_of(webhook())

    assert fate is Fate.FAILED
    assert error.startswith(f"{HOST} answered 422: no \N{REPLACEMENT CHARACTER} [31m such order !!!")
    assert error.isprintable()
    assert len(error) < 250


def test_receiver_that_is_away_costs_no_attempt_and_comes_back(receiver: Receiver, webhook: Make) -> None:
    """
    A refused connection is an outage; the same publisher delivers again as soon as the receiver is there.
    """
    with receiving() as first:
        publisher = webhook(url=first.url())
        assert fates(publisher, event()) == [Fate.SENT]

    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind((HOST, first.port))  # and does not listen, so that nobody else does meanwhile
        fate, error = error_of(publisher)
    assert (fate, error.startswith(f"{HOST} can't be reached: ConnectError: ")) == (Fate.UNAVAILABLE, True)

    with receiving(first.port) as second:
        assert fates(publisher, event()) == [Fate.SENT]
        publisher.close()
        assert len(second.requests) == 1


def test_rest_is_not_tried_after_an_outage(internet: Internet, outside: Make) -> None:
    """
    A name that nobody knows is an outage, and is looked up once for all events of a call.
    """
    internet.names[NAME] = [[]]

    assert fates(outside(), event(), event(), event()) == [Fate.UNAVAILABLE] * 3

    assert internet.lookups == [NAME]


def test_endpoint_that_does_not_finish_the_handshake_is_an_outage(webhook: Make) -> None:
    """
    Who takes a connection and is silent before anything was sent has not got the event.
    """
    with socket.create_server((HOST, 0)) as silent:
        url = f"https://{HOST}:{silent.getsockname()[1]}/"

        assert fates(webhook(url=url, connect_timeout=0.2), event()) == [Fate.UNAVAILABLE]


def test_hanging_receiver_fails_the_attempt(receiver: Receiver, webhook: Make) -> None:
    """
    No answer in time is a failed attempt, since the event may be what the receiver hangs on; the next one is tried.
    """

    def hang_once(handler: Handler) -> None:
        if len(receiver.requests) == 1:
            receiver.is_over.wait(PATIENCE)
        handler.reply(200)

    receiver.answer = hang_once

    assert fates(webhook(read_timeout=0.3), event(), event()) == [Fate.FAILED, Fate.SENT]


@pytest.mark.parametrize(("beginning", "fate"), [(b"HTTP/1.1 200 OK\r\nX: ", Fate.FAILED), (b"", Fate.FAILED)])
def test_answer_that_drips_ends_in_time(beginning: bytes, fate: Fate, receiver: Receiver, webhook: Make) -> None:
    """
    The time for an answer is for all of it, however many single bytes come in time.
    """
    drip(receiver, beginning)
    started = monotonic()

    assert fates(webhook(read_timeout=0.4), event()) == [fate]

    assert monotonic() - started < PATIENCE / 2


def test_preliminary_answers_end_in_time(receiver: Receiver, webhook: Make) -> None:
    """
    A receiver that keeps saying that an answer will follow has not answered, as fast as it may say so.
    """

    def promise(handler: Handler) -> None:
        until = monotonic() + PATIENCE
        while monotonic() < until and not receiver.is_over.is_set():
            handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100)
        handler.close_connection = True

    receiver.answer = promise
    started = monotonic()

    assert fates(webhook(read_timeout=0.4), event()) == [Fate.FAILED]

    assert monotonic() - started < PATIENCE / 2


def test_status_counts_when_the_body_drips(receiver: Receiver, webhook: Make) -> None:
    """
    A receiver that said 200 has the event; its body is not waited for longer than for an answer.
    """
    drip(receiver, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    started = monotonic()

    assert fates(webhook(read_timeout=0.4), event()) == [Fate.SENT]

    assert monotonic() - started < PATIENCE / 2


def drip(receiver: Receiver, beginning: bytes) -> None:
    """
    Have a receiver send single bytes after a beginning, until the other side or the test has had enough.
    """

    def answer(handler: Handler) -> None:
        handler.wfile.write(beginning)
        until = monotonic() + PATIENCE
        while monotonic() < until and not receiver.is_over.wait(0.02):
            handler.wfile.write(b"1")
        handler.close_connection = True

    receiver.answer = answer


@pytest.mark.parametrize(
    ("part", "fate"),
    [
        (b"", Fate.FAILED),
        (b"HTTP/1.1 20", Fate.FAILED),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Fate.FAILED),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 1000\r\n\r\nhalf", Fate.FAILED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf", Fate.SENT),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", Fate.SENT),
    ],
)
def test_answer_that_breaks_off_counts_by_its_status(
    part: bytes, fate: Fate, receiver: Receiver, webhook: Make
) -> None:
    """
    Without a status nobody knows what has arrived; with one it decides. The next event is posted in any case.
    """

    def break_off(handler: Handler) -> None:
        if len(receiver.requests) > 1:
            return handler.reply(200)
        handler.wfile.write(part)
        handler.close_connection = True

    receiver.answer = break_off

    assert fates(webhook(), event(), event()) == [fate, Fate.SENT]


@pytest.mark.parametrize("status", [200, 500])
def test_endless_body_is_not_read_to_its_end(status: int, receiver: Receiver, webhook: Make) -> None:
    """
    A body without an end costs the status nothing, and its connection is dropped.
    """
    is_dropped = False

    def pour(handler: Handler) -> None:
        nonlocal is_dropped
        handler.send_response(status)
        handler.end_headers()
        try:
            while not receiver.is_over.is_set():
                handler.wfile.write(b"x" * 65_536)
        except OSError:
            is_dropped = True
        handler.close_connection = True

    receiver.answer = pour
    started = monotonic()

    assert fates(webhook(read_timeout=PATIENCE), event()) == [Fate.SENT if status == 200 else Fate.FAILED]

    assert monotonic() - started < PATIENCE / 2
    wait_for(lambda: is_dropped, "the end of the connection")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": ""}, "'url' of Webhook is ''; it must be a text"),
        ({"url": None}, "'url' of Webhook is None; it must be a text"),
        ({"url": "https://hooks.example:secret-token/"}, "'url' of Webhook is '(not shown)'; it must be a URL"),
        ({"url": "hooks.example/secret-token"}, "it must be https://…, or http://… with allow_http=True"),
        ({"url": "https:///secret-token"}, "it must be https://…"),
        ({"url": "ftp://hooks.example/secret-token"}, "is 'ftp://hooks.example'; it must be https://…"),
        ({"url": "http://hooks.example/secret-token"}, "is 'http://hooks.example'; it must be https://…"),
        ({"url": "http://localhost/", "allow_private": False}, "it must be https://…"),
        ({"url": "http://hooks.example/", "allow_private": True}, "it must be https://…"),
        ({"secret": ""}, "'secrets' of Webhook is '(not shown)'"),
        ({"secrets": [OLD]}, "'secrets' of Webhook is '(not shown)'"),
        ({"secret": "", "secrets": OLD}, "it must be a list of texts"),
        ({"secret": "whsec_"}, "'secret' of Webhook is '(not shown)'; it must be a secret of Standard Webhooks"),
        ({"secret": "whsec_dG9rZW4="}, "at least 24 bytes as base64"),
        ({"secret": "whsec_secret-token-" + 24 * "Ä"}, "'secret' of Webhook is '(not shown)'"),
        ({"secret": OLD + "A"}, "'secret' of Webhook is '(not shown)'"),
        ({"secret": OLD.encode()}, "'secret' of Webhook is '(not shown)'"),
        ({"secret": "", "secrets": [OLD, ""]}, "'secrets' of Webhook is '(not shown)'"),
        ({"mode": "batched"}, "'mode' of Webhook is 'batched'; it must be 'structured' or 'binary'"),
        ({"allow_private": "False"}, "'allow_private' of Webhook is 'False'; it must be True or False"),
        ({"allow_http": 1}, "'allow_http' of Webhook is 1; it must be True or False"),
        ({"follow_redirects": None}, "'follow_redirects' of Webhook is None; it must be True or False"),
        ({"trust_env": "yes"}, "'trust_env' of Webhook is 'yes'; it must be True or False"),
        ({"connect_timeout": 0}, "'connect_timeout' of Webhook is 0; it must be a number of seconds"),
        ({"read_timeout": "10"}, "'read_timeout' of Webhook is '10'; it must be a number of seconds"),
        ({"trust_env": True}, "'trust_env' of Webhook is True; it must be left out, or given with allow_private=True"),
        ({"ca_file": "/nowhere.pem"}, "'ca_file' of Webhook is '/nowhere.pem'; it must be a file of certificates"),
        ({"ca_file": __file__}, "it must be a file of certificates"),
    ],
)
def test_wrong_option_is_told_when_the_publisher_is_made(options: dict[str, Any], told: str) -> None:
    """
    What can't work is refused with the setting's name before the first event, and no secret is told.
    """
    with pytest.raises(ImproperlyConfigured) as caught:
        Webhook(**{"url": "https://hooks.example/", "secret": OLD, **options})

    assert str(caught.value).startswith('DJANGO_LOGIC["OUTBOX_PUBLISHERS"]: the option ')
    assert told in str(caught.value)
    assert "token" not in str(caught.value)


@pytest.mark.parametrize("address", INSIDE)
def test_url_at_an_address_of_the_inside_is_refused_when_the_publisher_is_made(address: str) -> None:
    """
    An address that stands in the settings need not wait for the first event to be refused.
    """
    url = f"https://[{address}]/" if ":" in address else f"https://{address}/"

    with pytest.raises(ImproperlyConfigured, match=r"'url' of Webhook .* it must be at a public address"):
        Webhook(url=url, secret=OLD)

    assert Webhook(url=url, secret=OLD, allow_private=True).url == url


def test_secrets_do_not_show() -> None:
    """
    A publisher in a log or a debug page tells nothing that signs.
    """
    assert OLD not in repr(Webhook(url="https://hooks.example/", secret=OLD))


def test_events_are_taken_one_at_a_time() -> None:
    """
    A lease is renewed between two slow answers, since the relay hands over a single event.
    """
    assert Webhook.batch_size == 1
