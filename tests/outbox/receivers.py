"""
Run a real HTTP server in a thread, which a test may have misbehave, and stand between a test and the internet.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

HOST = "127.0.0.1"
PATIENCE = 20.0
POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """
    Hold one request as it came, and the port of the other side, which tells connections apart.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    peer: int


class Handler(BaseHTTPRequestHandler):
    """
    Note each request, and answer it the way the receiver was told to.
    """

    protocol_version = "HTTP/1.1"
    server: Receiver

    #: Seconds after which a connection that nobody uses is closed, so that no failing test hangs.
    timeout = PATIENCE

    def setup(self) -> None:
        """
        Note the connection.
        """
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        """
        Forget the connection.
        """
        try:
            super().finish()
        finally:
            self.server.connections.discard(self.connection)

    def do_POST(self) -> None:
        """
        Take a request.
        """
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(
            Request(method=self.command, path=self.path, headers=headers, body=body, peer=self.client_address[1])
        )
        try:
            self.server.answer(self)
        except OSError:
            self.close_connection = True  # the other side has had enough

    do_GET = do_POST

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        """
        Send a whole answer.
        """
        self.send_response(status)
        if status >= 200 and status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """
        Say nothing.
        """


class Receiver(ThreadingHTTPServer):
    """
    Receive what is posted to a free port of this machine; `answer` may be exchanged at any time.
    """

    daemon_threads = False

    def __init__(self, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.answer: Callable[[Handler], None] = lambda handler: handler.reply(200)
        self.is_over = threading.Event()
        self.connections: set[socket.socket] = set()
        super().__init__((HOST, port), Handler)
        if context is not None:
            # The handshake is made in the thread of the connection, where a failing one disturbs nobody.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.scheme = "http" if context is None else "https"

    @property
    def port(self) -> int:
        """
        The port it listens on.
        """
        return int(self.server_address[1])

    def url(self, host: str = HOST, path: str = "/hook") -> str:
        """
        Return the address of a path, under any name.
        """
        return f"{self.scheme}://{host}:{self.port}{path}"

    def hang_up(self) -> None:
        """
        Break all connections.
        """
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """
        Take no notice of connections that break, as many are meant to.
        """


@contextmanager
def receiving(port: int = 0, context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """
    Run a receiver until the block ends, and wait until its threads have ended.
    """
    receiver = Receiver(port, context)
    thread = threading.Thread(target=receiver.serve_forever, args=(POLL_SECONDS,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.is_over.set()
        receiver.shutdown()
        thread.join(PATIENCE)
        receiver.hang_up()
        receiver.server_close()


@dataclass(slots=True)
class Internet:
    """
    Hold what names resolve to, where addresses lead to, and which addresses were connected to.

    A name's answers are given one after the other, the last one for ever.
    """

    names: dict[str, list[list[str]]] = field(default_factory=dict)
    routes: dict[str, tuple[str, int]] = field(default_factory=dict)
    lookups: list[str] = field(default_factory=list)
    connected: list[str] = field(default_factory=list)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Stand in for the resolver and the routes of this machine, and for nothing above them.
        """
        real_lookup, real_connect = socket.getaddrinfo, socket.socket.connect

        def look_up(host: Any, port: Any, *args: Any, **options: Any) -> Any:
            if host not in self.names:
                return real_lookup(host, port, *args, **options)
            self.lookups.append(host)
            answers = self.names[host]
            found = answers.pop(0) if len(answers) > 1 else answers[0]
            if not found:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return [row for address in found for row in real_lookup(address, port, type=socket.SOCK_STREAM)]

        def connect(this: socket.socket, address: Any) -> None:
            self.connected.append(address[0])
            real_connect(this, self.routes.get(address[0], address))

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        monkeypatch.setattr(socket.socket, "connect", connect)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """
    Wait until a condition holds, and fail when it does not in time.
    """
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(POLL_SECONDS)
