"""
Connections to hosts that other people name, over httpx: never to an address within the own network.

A name is looked up once for each connection, and the connection goes to the very addresses that were judged; the name
is still what TLS verifies. Looking a name up has no time-out but the system's own.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Iterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from time import monotonic

import httpcore
import httpx

from django_logic.outbox.exceptions import BrokerUnavailable

__all__ = ["BROKEN", "UNREACHABLE", "AddressRefused", "client", "is_public", "literal"]

#: No connection came about, so that nothing can have arrived. The transport below raises the errors of httpcore.
UNREACHABLE = (
    httpcore.ConnectError,
    httpcore.ConnectTimeout,
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.ProxyError,
)
#: The rest of what can go wrong on the way, after which nobody knows what has arrived.
BROKEN = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, httpx.TransportError)
#: Seconds for which an idle connection is kept.
KEPT = 5.0
#: IPv6 addresses that stand for an IPv4 address in their last 32 bits.
NAT64 = IPv6Network("64:ff9b::/96")

Address = IPv4Address | IPv6Address


class AddressRefused(BrokerUnavailable):
    """
    Say that a host is at an address that is not public, and was not called.
    """

    def __init__(self, host: str, address: Address) -> None:
        super().__init__(
            f"Connection to {host} refused: found {address}, which is no public address. Name a host that is on the "
            f"internet, or set allow_private=True if this one may be called."
        )
        self.host = host
        self.address = address


def literal(host: str) -> Address | None:
    """
    Return the address that a host is written as, None for a name.
    """
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_public(address: Address) -> bool:
    """
    Tell whether an address is on the internet, also for one that carries an IPv4 address in itself.
    """
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    # A shared address of a provider is not "private", and a multicast one can be "global": each word is needed.
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_private)


def client(context: ssl.SSLContext, timeout: httpx.Timeout, *, allow_private: bool, trust_env: bool) -> httpx.Client:
    """
    Return a client that connects as this module promises. It keeps no cookies and follows no redirect.

    With ``trust_env`` proxies from the environment choose the addresses: nothing is judged here, and the time-out for
    reading is for each piece of an answer, as httpx has it.
    """
    cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
    if trust_env:
        return httpx.Client(verify=context, timeout=timeout, cookies=cookies, trust_env=True)
    network = Network(allow_private=allow_private, answer_within=timeout.read)
    pool = httpcore.ConnectionPool(ssl_context=context, network_backend=network, keepalive_expiry=KEPT)
    return httpx.Client(transport=Transport(pool), timeout=timeout, cookies=cookies, trust_env=False)


class Network(httpcore.SyncBackend):
    """
    Connect to judged addresses, one after the other until one takes the connection.
    """

    def __init__(self, *, allow_private: bool, answer_within: float | None) -> None:
        self._allow_private = allow_private
        self._answer_within = answer_within

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """
        Connect to a host; the time-out is for each of its addresses.

        Raises: AddressRefused when any of its addresses is not public.
        """
        addresses = look_up(host, port)
        refused = [address for address in addresses if not (self._allow_private or is_public(address))]
        if refused:
            raise AddressRefused(host, refused[0])
        error: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                stream = super().connect_tcp(str(address), port, timeout, local_address, socket_options)
                return Stream(stream, self._answer_within)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as found:
                error = found
        raise error


def look_up(host: str, port: int) -> list[Address]:
    """
    Return the addresses of a host in the order they should be tried.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host} was not found: {error}") from error
    return list(dict.fromkeys(ip_address(sockaddr[0]) for *_, sockaddr in found))


class Stream(httpcore.NetworkStream):
    """
    Give the other side one span of time for its whole answer, however slowly it drips.
    """

    def __init__(self, stream: httpcore.NetworkStream, answer_within: float | None) -> None:
        self._stream = stream
        self._answer_within = answer_within
        self._until = float("inf")

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """
        Read until the time is over that began with the last write.
        """
        left = self._until - monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("the answer was not over in time")
        return self._stream.read(max_bytes, left if timeout is None else min(left, timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """
        Write, and let the time for the answer begin.
        """
        self._stream.write(buffer, timeout)
        if self._answer_within is not None:
            self._until = monotonic() + self._answer_within

    def close(self) -> None:
        """
        Close the connection.
        """
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """
        Go on in TLS.
        """
        return Stream(self._stream.start_tls(ssl_context, server_hostname, timeout), self._answer_within)

    def get_extra_info(self, info: str) -> object:
        """
        Tell about the connection.
        """
        return self._stream.get_extra_info(info)


class Transport(httpx.BaseTransport):
    """
    Carry a client's requests over a pool, since httpx has no option for the network below its own.
    """

    def __init__(self, pool: httpcore.ConnectionPool) -> None:
        self._pool = pool

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """
        Send a request, and return the answer with its body unread.
        """
        url = request.url
        answer = self._pool.handle_request(
            httpcore.Request(
                request.method,
                # In parts, as the library would lose a bit of a path when it takes a text apart.
                httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.read(),
                extensions=request.extensions,
            )
        )
        return httpx.Response(answer.status, headers=answer.headers, stream=Body(answer), extensions=answer.extensions)

    def close(self) -> None:
        """
        Close all connections.
        """
        self._pool.close()


class Body(httpx.SyncByteStream):
    """
    Hold the body of an answer, to be read as it comes.
    """

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        yield from self._answer.iter_stream()

    def close(self) -> None:
        """
        Give the connection back when the body was read to its end, else close it.
        """
        self._answer.close()
