"""
Prove that a webhook lures nobody inside: neither by its address, nor by its name, nor by a redirect.
"""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import ExitStack
from ipaddress import ip_address
from typing import Any

import pytest

from django_logic.outbox.exceptions import BrokerUnavailable
from django_logic.outbox.publishers import Fate
from tests.outbox.receivers import HOST, Internet, Receiver, receiving
from tests.outbox.webhooks import (
    FIXTURES,
    INSIDE,
    MOST_REDIRECTS,
    NAME,
    OLD,
    OTHER_PUBLIC,
    PUBLIC,
    Make,
    Verifier,
    error_of,
    event,
    fates,
    is_public,
    redirect,
    trustme,
)

pytest_plugins = [FIXTURES]


@pytest.fixture
def authority() -> trustme.CA:
    """
    Give an authority that issues certificates.
    """
    return trustme.CA()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed_unasked(status: int, receiver: Receiver, webhook: Make) -> None:
    """
    A redirect is a failed attempt, and where it leads is told.
    """
    receiver.answer = redirect(status, "/other")

    fate, error = error_of(webhook())

    assert (fate, error) == (
        Fate.FAILED,
        f"{HOST} answered {status}, a redirect to '/other' that is not followed.",
    )
    assert [request.path for request in receiver.requests] == ["/hook"]


@pytest.mark.parametrize("status", [307, 308])
def test_redirect_that_keeps_the_post_is_followed_when_asked(status: int, receiver: Receiver, webhook: Make) -> None:
    """
    With follow_redirects the same signed body is posted to the new place, over the same connection.
    """
    receiver.answer = redirect(status, "/other")

    assert fates(webhook(follow_redirects=True), event()) == [Fate.SENT]

    first, second = receiver.requests
    Verifier(OLD).verify(second.body, dict(second.headers))
    assert (second.method, second.path, second.body) == ("POST", "/other", first.body)
    assert first.peer == second.peer


@pytest.mark.parametrize("status", [301, 302, 303])
def test_redirect_that_loses_the_post_is_never_followed(status: int, receiver: Receiver, webhook: Make) -> None:
    """
    What would become a GET without a body delivers nothing, though it may well be answered with 200.
    """
    receiver.answer = redirect(status, "/other")

    assert fates(webhook(follow_redirects=True), event()) == [Fate.FAILED]

    assert [request.path for request in receiver.requests] == ["/hook"]


def test_redirects_in_a_ring_end(receiver: Receiver, webhook: Make) -> None:
    """
    A receiver that sends in circles gets a few requests and a failed attempt.
    """
    receiver.answer = redirect(307, "/hook")

    assert fates(webhook(follow_redirects=True), event()) == [Fate.FAILED]

    assert len(receiver.requests) == 1 + MOST_REDIRECTS


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "localhost", "127.0.0.1", "127.1", "2130706433", "0x7f.0.0.1", "[::1]", "inside.example"],
)
def test_redirect_to_the_inside_is_refused(host: str, receiver: Receiver, internet: Internet, outside: Make) -> None:
    """
    A receiver can't send us to an address within the own network; that it tried is a failed attempt.
    """
    internet.names["inside.example"] = [["10.0.0.1"]]
    receiver.answer = redirect(307, f"http://{host}:{receiver.port}/inside")

    fate, error = error_of(outside(follow_redirects=True))

    assert (fate, "sent a redirect that is not followed. Connection to" in error) == (Fate.FAILED, True)
    assert [request.path for request in receiver.requests] == ["/hook"]
    assert internet.connected == [PUBLIC]


@pytest.mark.parametrize(
    "place", ["http://hooks.example/", "ftp://hooks.example/", "file:///etc/passwd", "http://[", ""]
)
def test_redirect_out_of_tls_is_refused(
    place: str, internet: Internet, authority: trustme.CA, webhook: Make, tmp_path: Any
) -> None:
    """
    What was to be sent in secret is not sent in the open, nor to what is no web at all.
    """
    with receiving(context=serving(authority, NAME)) as receiver:
        internet.routes[PUBLIC] = (HOST, receiver.port)
        receiver.answer = redirect(307, place)
        options = {"url": receiver.url(NAME), "allow_private": False, "ca_file": trusted(authority, tmp_path)}

        found = fates(webhook(follow_redirects=True, **options), event())

    assert found == [Fate.FAILED]
    assert internet.connected == [PUBLIC]


@pytest.mark.parametrize("address", INSIDE)
def test_address_of_the_inside_is_not_public(address: str) -> None:
    """
    Private, shared, local, reserved, multicast and unspecified addresses are told, within IPv6 ones too.
    """
    assert is_public(ip_address(address)) is False


@pytest.mark.parametrize(
    "address", [PUBLIC, "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
)
def test_address_of_the_internet_is_public(address: str) -> None:
    """
    Addresses of the internet are told, within IPv6 ones too.
    """
    assert is_public(ip_address(address)) is True


@pytest.mark.parametrize("address", INSIDE)
def test_name_that_leads_inside_is_refused(address: str, internet: Internet, outside: Make) -> None:
    """
    A name with an address within the own network is not called, and nothing is lost: the settings are to blame.
    """
    internet.names[NAME] = [[PUBLIC, address]]

    with pytest.raises(BrokerUnavailable, match=r"Connection to hooks\.example refused: found .* allow_private=True"):
        outside().publish([event(), event()])

    assert internet.connected == []


def test_name_in_any_alphabet_that_leads_inside_is_refused(internet: Internet, outside: Make) -> None:
    """
    A name that goes by another spelling in the network is the endpoint's own all the same.
    """
    internet.names["xn--gre-6ka8i.example"] = [["10.0.0.1"]]

    with pytest.raises(BrokerUnavailable, match=r"Connection to xn--gre-6ka8i\.example refused"):
        outside(url="https://größe.example/").publish([event()])

    assert internet.connected == []


def test_name_that_leads_inside_later_keeps_what_was_delivered(
    receiver: Receiver, internet: Internet, outside: Make
) -> None:
    """
    When a name moves inside between two events, the first has arrived and the rest waits.
    """
    internet.names[NAME] = [[PUBLIC], ["127.0.0.1"]]
    receiver.answer = lambda handler: handler.reply(200, Connection="close")

    assert fates(outside(), event(), event(), event()) == [Fate.SENT, Fate.UNAVAILABLE, Fate.UNAVAILABLE]

    assert internet.connected == [PUBLIC]


def test_name_can_not_change_between_check_and_connection(
    receiver: Receiver, internet: Internet, outside: Make
) -> None:
    """
    What is connected to is the address that was judged, though the name leads inside a moment later.
    """
    internet.names[NAME] = [[PUBLIC], ["127.0.0.1"]]

    assert fates(outside(), event()) == [Fate.SENT]

    assert (internet.lookups, internet.connected) == ([NAME], [PUBLIC])
    assert [request.headers["host"] for request in receiver.requests] == [f"{NAME}:{receiver.port}"]


def test_other_addresses_are_tried_when_the_first_is_away(internet: Internet, outside: Make) -> None:
    """
    One dead address of a name keeps nobody from the living one.
    """
    with socket.socket() as taken:
        taken.bind((HOST, 0))  # and does not listen
        internet.names[NAME] = [[OTHER_PUBLIC, PUBLIC]]
        internet.routes[OTHER_PUBLIC] = taken.getsockname()

        assert fates(outside(), event()) == [Fate.SENT]

    assert internet.connected == [OTHER_PUBLIC, PUBLIC]


def test_certificate_is_verified_for_the_name(
    internet: Internet, authority: trustme.CA, webhook: Make, tmp_path: Any
) -> None:
    """
    TLS asks for the name and verifies it, though the connection was made to an address; a wrong one is an outage.
    """
    asked: list[Any] = []
    with ExitStack() as stack:
        for name, address in ((NAME, PUBLIC), ("wrong.example", OTHER_PUBLIC)):
            context = serving(authority, NAME)
            context.sni_callback = lambda _socket, asked_for, _context: asked.append(asked_for)
            receiver = stack.enter_context(receiving(context=context))
            internet.names[name] = [[address]]
            internet.routes[address] = (HOST, receiver.port)
        options = {"allow_private": False, "ca_file": trusted(authority, tmp_path)}

        right = webhook(url=f"https://{NAME}/", **options).publish([event()])
        wrong = webhook(url="https://wrong.example/", **options).publish([event()])

    assert [result.fate for result in (*right, *wrong)] == [Fate.SENT, Fate.UNAVAILABLE]
    assert "certificate verify failed" in wrong[0].error
    assert asked == [NAME, "wrong.example"]
    assert internet.connected == [PUBLIC, OTHER_PUBLIC]


def test_certificate_of_a_stranger_is_refused(internet: Internet, authority: trustme.CA, webhook: Make) -> None:
    """
    Without a ca_file only the usual authorities are trusted, and nothing is sent to anybody else.
    """
    with receiving(context=serving(authority, NAME)) as receiver:
        internet.routes[PUBLIC] = (HOST, receiver.port)

        found = fates(webhook(url=receiver.url(NAME), allow_private=False), event())

    assert (found, receiver.requests) == ([Fate.UNAVAILABLE], [])


def serving(authority: trustme.CA, name: str) -> ssl.SSLContext:
    """
    Return what a server needs to be known by a name.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def trusted(authority: trustme.CA, folder: Any) -> str:
    """
    Return the file by which an authority is trusted.
    """
    file = folder / "authority.pem"
    authority.cert_pem.write_to_path(file)
    return str(file)


def test_proxies_of_the_environment_are_used_only_when_asked(
    receiver: Receiver, webhook: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    HTTP_PROXY is no way in: events go straight to the receiver, unless trust_env says otherwise.
    """
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    with receiving() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url(path=""))
        straight = webhook()
        around = webhook(url="http://hooks.example/hook", trust_env=True, allow_http=True)

        assert fates(straight, event()) + fates(around, event()) == [Fate.SENT, Fate.SENT]
        around.close()

    assert [request.path for request in receiver.requests] == ["/hook"]
    assert [request.path for request in proxy.requests] == ["http://hooks.example/hook"]


def test_proxy_that_is_away_is_an_outage(webhook: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without the way out nothing can be sent, which is no event's fault.
    """
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        monkeypatch.setenv("HTTPS_PROXY", f"http://{HOST}:{taken.getsockname()[1]}")

        assert fates(webhook(url="https://hooks.example/", trust_env=True), event()) == [Fate.UNAVAILABLE]


def test_proxy_that_lets_nothing_out_is_an_outage(
    receiver: Receiver, webhook: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A proxy that refuses the way to the endpoint keeps every event from it, so it costs none an attempt.
    """
    monkeypatch.setenv("HTTPS_PROXY", receiver.url(path=""))

    assert fates(webhook(url="https://hooks.example/", trust_env=True), event()) == [Fate.UNAVAILABLE]

    assert receiver.requests == []
