"""
Run a real RabbitMQ or a real Redis on a free port of this machine, which a test may kill and start again.

What is *not* done here: one server for all tests, which `tests.outbox.shared_servers` gives, and the servers without
which nothing is tested, which `tests.servers` starts.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import pytest

from example import keeper, services
from tests.servers import are_required

HOST = "127.0.0.1"
PATIENCE = 60.0
FROZEN_SECONDS = 20.0
POLL_SECONDS = 0.02
#: What the RabbitMQ that is shared takes, in bytes.
LARGEST_MESSAGE = 1_000_000
#: The plugin with the fixtures `rabbitmq_server` and `redis_server`, for ``pytest_plugins``.
SHARED_SERVERS = "tests.outbox.shared_servers"
# The shell becomes the server, so the number it writes is the server's own.
TELL_PID = ("/bin/sh", "-c", 'echo $$ > pid && exec "$@"', "sh")
#: RabbitMQ's own launcher: what Debian has on the path changes to another account first.
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
# Two threads that don't spin, and no port for other nodes beyond this machine.
ERLANG = "+S 2:2 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}"


class Server:
    """
    Stop, kill and start one server; it keeps its port and its folder.

    A keeper runs it, so that it ends and its folder goes when this process ends, however that comes about. One that
    opens its port before it has read its folder needs a `greeting`, and is there when it has answered that.
    """

    def __init__(self, scheme: str, path: str = "", greeting: bytes = b"") -> None:
        self.greeting = greeting
        self.port = free_port()
        self.url = f"{scheme}{HOST}:{self.port}{path}"
        self.folder = Path(tempfile.mkdtemp(prefix="dl-"))

    @contextmanager
    def running(self, program: tuple[str, ...], environment: Mapping[str, str] | None = None) -> Iterator[Server]:
        """
        Run a program that listens on the port until the block ends.

        Raises: ServiceFailed when it does not start.
        """
        command = [sys.executable, "-I", str(services.KEEPER), str(self.folder)]
        owned = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        plan = services.Plan(serve=(*TELL_PID, *program), stop_signal=signal.SIGKILL, is_revived=True)
        orders = cast("IO[bytes]", owned.stdin)
        try:
            orders.write(plan.as_line())
            orders.flush()
            self.wait(lambda: self.answers(self.greeting))
            yield self
        finally:
            # This closes the pipe, which is the order to stop, and waits until the folder is gone.
            owned.communicate()

    def kill(self) -> None:
        """
        End the server at once, as a crash does.
        """
        self.end(signal.SIGKILL)

    def stop(self) -> None:
        """
        End the server in its own way.
        """
        self.end(signal.SIGTERM)

    def start(self) -> None:
        """
        Start the server again, and wait until it answers.
        """
        (self.folder / keeper.DOWN_NAME).unlink(missing_ok=True)
        self.wait(lambda: self.answers(self.greeting))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """
        Let the server hold its connections and say nothing until the block ends, or nobody would wait any longer.
        """
        later = threading.Timer(FROZEN_SECONDS, self.thaw)
        os.kill(self.pid(), signal.SIGSTOP)
        later.start()
        try:
            yield
        finally:
            later.cancel()
            later.join()
            self.thaw()

    @contextmanager
    def thawing(self, seconds: float) -> Iterator[None]:
        """
        Let a frozen server go on while the block runs.
        """
        soon = threading.Timer(seconds, self.thaw)
        soon.start()
        try:
            yield
        finally:
            soon.join()

    def thaw(self) -> None:
        """
        Let a frozen server go on.
        """
        os.kill(self.pid(), signal.SIGCONT)

    def end(self, number: signal.Signals) -> None:
        """
        Send a signal that ends the server, and wait until its port is closed; it stays down until `start`.
        """
        (self.folder / keeper.DOWN_NAME).touch()
        pid = self.pid()
        (self.folder / "pid").unlink()
        os.kill(pid, number)
        self.wait(lambda: not self.answers())

    def pid(self) -> int:
        """
        Name the process.
        """
        return int((self.folder / "pid").read_text())

    def answers(self, greeting: bytes = b"") -> bool:
        """
        Tell whether the port takes connections, and the server says anything to a greeting.
        """
        try:
            with socket.create_connection((HOST, self.port), timeout=1.0) as line:
                line.sendall(greeting)
                return not greeting or bool(line.recv(1))
        except OSError:
            return False

    def wait(self, holds: Callable[[], bool]) -> None:
        """
        Wait until something holds.

        Raises: ServiceFailed, with the end of the log, when it does not come to hold.
        """
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                log = (self.folder / keeper.LOG_NAME).read_text(errors="replace")[-2000:]
                raise services.ServiceFailed(f"The server at {self.url} did not do as told:\n{log}")
            time.sleep(POLL_SECONDS)


@contextmanager
def rabbitmq(options: Mapping[str, str] | None = None) -> Iterator[Server]:
    """
    Run a RabbitMQ, with the plug-in for consistent hashing, until the block ends. Starting takes some seconds.

    `options` are lines of its configuration. Raises: ServiceMissing without a binary.
    """
    launcher = str(RABBITMQ) if RABBITMQ.exists() else shutil.which("rabbitmq-server")
    names = shutil.which("epmd")
    if launcher is None or names is None:
        raise services.ServiceMissing("A RabbitMQ server", "the Debian package rabbitmq-server")
    # Erlang would leave its name server running for ever if it had to start one itself.
    epmd, server = Server("epmd://"), Server("amqp://guest:guest@", "//")
    folder = server.folder
    (folder / "plugins").write_text("[rabbitmq_consistent_hash_exchange].\n")
    settings = {"loopback_users.guest": "true", "disk_free_limit.absolute": "1MB", **(options or {})}
    (folder / "rabbitmq.conf").write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    environment = {
        "HOME": str(folder),
        "RUNNING_UNDER_SYSTEMD": "1",  # else the launcher would stay between us and the server
        "RABBITMQ_NODENAME": f"dl{server.port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(server.port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
        "ERL_EPMD_PORT": str(epmd.port),
        "ERL_EPMD_ADDRESS": HOST,
    }
    with (
        epmd.running((names, "-port", str(epmd.port), "-address", HOST)),
        server.running((launcher,), environment),
    ):
        yield server


@contextmanager
def redis(options: Mapping[str, str] | None = None) -> Iterator[Server]:
    """
    Run a Redis until the block ends; it keeps nothing on disk unless `options`, its settings, say so.

    Raises: ServiceMissing without a binary.
    """
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise services.ServiceMissing("A Redis server", "the Debian package redis-server")
    server = Server("redis://", greeting=b"PING\r\n")
    settings = {"bind": HOST, "port": str(server.port), "save": "", **(options or {})}
    with server.running((program, *(word for name, value in settings.items() for word in (f"--{name}", value)))):
        yield server


@contextmanager
def silent() -> Iterator[int]:
    """
    Give a port of this machine where connections are taken and nothing is ever said.
    """
    with socket.create_server((HOST, 0)) as listener:
        yield listener.getsockname()[1]


@contextmanager
def blackhole() -> Iterator[int]:
    """
    Give a port of this machine where an attempt to connect meets neither consent nor refusal.
    """
    # One waiting connection fills the queue; the kernel then drops what comes, as a firewall does.
    with (
        socket.create_server((HOST, 0), backlog=0) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        yield listener.getsockname()[1]


def certificate(folder: Path) -> tuple[Path, Path]:
    """
    Make a certificate for this machine that vouches for itself, and its key.

    Raises: ServiceMissing without the program that makes it.
    """
    program = shutil.which("openssl")
    if program is None:
        raise services.ServiceMissing("The program openssl", "the Debian package openssl")
    made, key = folder / "certificate.pem", folder / "key.pem"
    asked = ("-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{HOST}", "-days", "2")
    stored = ("-nodes", "-newkey", "rsa:2048", "-keyout", str(key), "-out", str(made))
    subprocess.run([program, "req", "-x509", *asked, *stored], check=True, capture_output=True)
    return made, key


def free_port() -> int:
    """
    Find a port that nothing listens on.
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def sockets_to(port: int) -> list[str]:
    """
    List the sockets that this process has open to a port of this machine.
    """
    own = {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return [row[2] for row in rows if int(row[2].split(":")[1], 16) == port and f"socket:[{row[9]}]" in own]


@contextmanager
def or_skipped() -> Iterator[None]:
    """
    Skip what needs a server that is not installed; fail it, when services are required.
    """
    try:
        yield
    except services.ServiceMissing as missing:
        (pytest.fail if are_required() else pytest.skip)(str(missing))
