"""
Deliver events to one webhook, over httpx, signed as Standard Webhooks has it.

An endpoint that can't be connected to (refused, unknown, no answer to the connect, no valid certificate) takes nothing
for now, whatever is sent: that costs no attempt. Nor does an answer that says so: 429, 502, 503, 504. Where others are
taken between two of these to one event, it may be to blame: 503 puts it off, 502 and 504 fail it. After a connection
without an answer nobody knows what has arrived, and the payload may be why the receiver hangs or breaks off: that is a
failed attempt. So is each other answer but 2xx, as receivers get mended, and except 410 Gone: it wants no more.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from time import monotonic
from uuid import UUID

import httpx
import standardwebhooks
from cloudevents.core.bindings.http import HTTPMessage, to_binary, to_structured

from django_logic.outbox.envelope import FORMAT, as_cloud_event
from django_logic.outbox.event import Event
from django_logic.outbox.exceptions import BrokerUnavailable, Undeliverable
from django_logic.outbox.publishers import Fate, Result, dead, egress, failed, options, told, unavailable
from django_logic.outbox.publishers.answers import BLAMING, beginning, judge, rest_after

__all__ = ["Webhook"]

MODES = {"structured": to_structured, "binary": to_binary}
FLAGS = ("follow_redirects", "allow_private", "allow_http", "trust_env")
#: The redirects that keep a POST what it is.
KEEPING = frozenset({HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT})
MOST_REDIRECTS = 5
#: How many events are remembered that met a receiver that is away.
MOST_MET = 1000
#: Characters of the least secret that Standard Webhooks has: 24 bytes.
LEAST_SECRET = 32
#: Stands in messages for what must not be told.
HIDDEN = "(not shown)"


@dataclass(kw_only=True, repr=False, eq=False)
class Webhook:
    """
    Post each event to ``url``, one after the other over one connection.

    So one publisher has one receiver: what says that this takes nothing for now is told of the whole destination.
    Every one of ``secrets`` signs, so that a receiver verifies with the old or the new one. The signature is over id,
    time and body: in the mode "binary" the topic and the other attributes are in headers, and not signed.
    """

    #: One at a time, so that a claim is never kept longer than one event takes.
    batch_size = 1

    url: str
    secret: str = ""
    secrets: Sequence[str] = ()
    mode: str = "structured"
    #: Seconds, for each address of a name.
    connect_timeout: float = 3.0
    #: Seconds for the whole answer.
    read_timeout: float = 10.0
    follow_redirects: bool = False
    #: Addresses within the own network may be called.
    allow_private: bool = False
    allow_http: bool = False
    #: Proxies come from the environment. They choose the addresses, so that nothing but they can refuse private ones.
    trust_env: bool = False
    #: The certificates to trust instead of those that come with httpx.
    ca_file: str = ""

    def __post_init__(self) -> None:
        for name in FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise options.refusal("Webhook", name, getattr(self, name), "True or False")
        self._url = self._judged_url()
        self._signers = signers(self.secret, self.secrets)
        if self.mode not in MODES:
            raise options.refusal("Webhook", "mode", self.mode, "'structured' or 'binary'")
        self._timeout = httpx.Timeout(
            options.seconds("Webhook", "read_timeout", self.read_timeout),
            connect=options.seconds("Webhook", "connect_timeout", self.connect_timeout),
        )
        if self.trust_env and not self.allow_private:
            needed = "left out, or given with allow_private=True: what a proxy connects to can only be judged by it"
            raise options.refusal("Webhook", "trust_env", self.trust_env, needed)
        self._context = trusting(self.ca_file, trust_env=self.trust_env)
        self._client: httpx.Client | None = None
        self._rests_until = monotonic()
        self._taken = 0
        #: How many events had been taken when an event last met that the receiver is away, by the event.
        self._met: dict[UUID, int] = {}

    def publish(self, events: Sequence[Event]) -> Sequence[Result]:
        """
        Post events until one can't be; the rest is not tried then.

        Raises: BrokerUnavailable when the endpoint itself is at an address that is not public.
        """
        results: list[Result] = []
        for event in events:
            if results and results[-1].fate is Fate.UNAVAILABLE:
                results.append(results[-1])
                continue
            try:
                results.append(self._deliver(event))
            except BrokerUnavailable as error:
                if not results:
                    raise
                results.append(unavailable(error))
        return results

    def close(self) -> None:
        """
        Close the connection.
        """
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _judged_url(self) -> httpx.URL:
        try:
            url = httpx.URL(options.text("Webhook", "url", self.url))
        except httpx.InvalidURL:
            # Its text has parts of the URL, which may hold a password.
            raise options.refusal("Webhook", "url", HIDDEN, "a URL") from None
        # A path may hold a token.
        shown, address = f"{url.scheme}://{url.host}", egress.literal(url.host)
        if not url.host or not self._is_safe(url):
            raise options.refusal("Webhook", "url", shown, "https://…, or http://… with allow_http=True")
        if address is not None and not (self.allow_private or egress.is_public(address)):
            needed = "at a public address, or given with allow_private=True"
            raise options.refusal("Webhook", "url", shown, needed)
        return url

    def _is_safe(self, url: httpx.URL) -> bool:
        address = egress.literal(url.host)
        is_own = url.host == "localhost" or (address is not None and address.is_loopback)
        return url.scheme == "https" or (url.scheme == "http" and (self.allow_http or (self.allow_private and is_own)))

    def _deliver(self, event: Event) -> Result:
        try:
            request = self._request(event)
        except (Undeliverable, TypeError, ValueError) as error:
            return dead(error)
        host = self._url.host
        if (left := self._rests_until - monotonic()) > 0:
            return unavailable(f"{host} asked to be left alone, for another {left:.0f} s.")
        try:
            with closing(self._post(request)) as answer:
                return self._weighed(event, answer)
        except egress.AddressRefused as error:
            if error.host == self._url.raw_host.decode():
                raise
            return failed(f"{host} sent a redirect that is not followed. {error}")
        except egress.UNREACHABLE as error:
            return unavailable(f"{host} can't be reached: {told(error)}")
        except egress.BROKEN as error:
            return failed(f"{host} did not answer: {told(error)}")

    def _weighed(self, event: Event, answer: httpx.Response) -> Result:
        result = judge(self._url.host, answer)
        if result.fate is Fate.SENT:
            self._taken += 1
            self._met.pop(event.id, None)
        elif answer.status_code in BLAMING:
            before, self._met[event.id] = self._met.pop(event.id, self._taken), self._taken
            if len(self._met) > MOST_MET:
                del self._met[next(iter(self._met))]
            if before < self._taken:
                return BLAMING[answer.status_code](result.error)
        if result.fate is Fate.UNAVAILABLE:
            self._rests_until = monotonic() + rest_after(answer)
        return result

    def _request(self, event: Event) -> httpx.Request:
        message: HTTPMessage = MODES[self.mode](as_cloud_event(event), FORMAT)
        now, number, body = datetime.now(UTC), str(event.id), message.body.decode()
        headers = {
            **message.headers,
            "webhook-id": number,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": " ".join(signer.sign(number, now, body) for signer in self._signers),
        }
        return self._connected().build_request("POST", self._url, content=message.body, headers=headers)

    def _post(self, request: httpx.Request) -> httpx.Response:
        answer = self._connected().send(request, stream=True)
        for _ in range(MOST_REDIRECTS if self.follow_redirects else 0):
            onward = answer.next_request if answer.status_code in KEEPING else None
            if onward is None or not self._is_safe(onward.url):
                break
            beginning(answer)
            answer.close()
            answer = self._connected().send(onward, stream=True)
        return answer

    def _connected(self) -> httpx.Client:
        if self._client is None:
            self._client = egress.client(
                self._context, self._timeout, allow_private=self.allow_private, trust_env=self.trust_env
            )
        return self._client


def signers(secret: str, secrets: Sequence[str]) -> list[standardwebhooks.Webhook]:
    """
    Return what signs, one for each secret.
    """
    all_of = secrets or [secret]
    if isinstance(secrets, str) or bool(secret) == bool(secrets):
        raise options.refusal("Webhook", "secrets", HIDDEN, "a list of texts, or left out where secret is given")
    needed = "a secret of Standard Webhooks: at least 24 bytes as base64, with or without whsec_ before it"
    wrong = options.refusal("Webhook", "secrets" if secrets else "secret", HIDDEN, needed)
    if not all(is_secret(text) for text in all_of):
        raise wrong
    try:
        return [standardwebhooks.Webhook(text) for text in all_of]
    except ValueError as error:
        raise wrong from error


def is_secret(value: object) -> bool:
    """
    Tell whether a value is long enough for a secret; what its characters are is judged by the library.
    """
    return isinstance(value, str) and len(value.removeprefix("whsec_")) >= LEAST_SECRET


def trusting(ca_file: str, *, trust_env: bool) -> ssl.SSLContext:
    """
    Return what verifies certificates.
    """
    if not ca_file:
        return httpx.create_ssl_context(trust_env=trust_env)
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise options.refusal("Webhook", "ca_file", ca_file, f"a file of certificates ({error})") from error
