"""
Put pgbouncer in front of a PostgreSQL.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from example.services import ServiceFailed, ServiceMissing
from tests.worker.processes import end_with_starter

#: The port in the name of a unix socket; nothing listens on the network.
PORT = "6432"
READY_SECONDS = 15.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.02
CONFIGURATION = """
[databases]
* = host={host} port={port} user={user}{password}
[pgbouncer]
listen_port = {pooler_port}
unix_socket_dir = {folder}
logfile = {folder}/pgbouncer.log
pidfile = {folder}/pgbouncer.pid
auth_type = any
admin_users = postgres
pool_mode = {pool_mode}
default_pool_size = {pool_size}
max_client_conn = 500
server_lifetime = 3600
ignore_startup_parameters = extra_float_digits
"""


class Pooler:
    """
    Speak to a running pgbouncer.

    `facts` is the entry of DATABASES that leads through it, with what Django needs in transaction mode.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self.folder = folder
        self.facts: dict[str, Any] = {
            **facts,
            "HOST": str(folder),
            "PORT": PORT,
            "DISABLE_SERVER_SIDE_CURSORS": True,
            # pgbouncer before 1.21 loses prepared statements between transactions.
            "OPTIONS": {**facts.get("OPTIONS", {}), "prepare_threshold": None},
        }

    def command(self, text: str) -> list[tuple[Any, ...]]:
        """
        Run a command of pgbouncer's console, such as ``PAUSE``, ``RESUME``, ``RECONNECT`` or ``SHOW POOLS``.
        """
        console = psycopg.connect(
            host=str(self.folder),
            port=PORT,
            dbname="pgbouncer",
            user="postgres",
            autocommit=True,
            prepare_threshold=None,
        )
        # The console speaks the simple protocol alone, which psycopg's client-side cursor uses.
        with console, psycopg.ClientCursor(console) as cursor:
            cursor.execute(text)
            return cursor.fetchall() if cursor.description else []

    @property
    def log(self) -> str:
        """
        Return what it has logged.
        """
        return (self.folder / "pgbouncer.log").read_text(errors="replace")


@contextmanager
def pgbouncer(facts: Mapping[str, Any], *, pool_mode: str = "transaction", pool_size: int = 20) -> Iterator[Pooler]:
    """
    Run pgbouncer in front of the server of one entry of DATABASES until the block ends.

    Raises: ServiceMissing without the program, ServiceFailed when it does not start.
    """
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise ServiceMissing("pgbouncer", "the Debian package pgbouncer")
    account = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
    # The path of a socket must be short, which the temporary folder of a test isn't.
    with tempfile.TemporaryDirectory(prefix="dl-pool-", dir="/tmp") as name:
        folder = Path(name)
        _configure(folder, facts, pool_mode=pool_mode, pool_size=pool_size)
        identity: dict[str, Any] = {}
        if account is not None:
            for path in (folder, *folder.iterdir()):
                os.chown(path, account.pw_uid, account.pw_gid)
            identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        process = subprocess.Popen(
            [program, "-q", str(folder / "pgbouncer.ini")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=end_with_starter,
            **identity,
        )
        pooler = Pooler(folder, facts)
        try:
            _wait_until_it_answers(process, pooler)
            yield pooler
        finally:
            _stop(process)


def _configure(folder: Path, facts: Mapping[str, Any], *, pool_mode: str, pool_size: int) -> None:
    text = CONFIGURATION.format(
        host=facts["HOST"] or "127.0.0.1",
        port=facts["PORT"] or 5432,
        user=facts["USER"],
        password=f" password={facts['PASSWORD']}" if facts["PASSWORD"] else "",
        pooler_port=PORT,
        folder=folder,
        pool_mode=pool_mode,
        pool_size=pool_size,
    )
    (folder / "pgbouncer.ini").write_text(text)


def _wait_until_it_answers(process: subprocess.Popen[bytes], pooler: Pooler) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            pooler.command("SHOW VERSION")
            return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                log = pooler.log if (pooler.folder / "pgbouncer.log").exists() else "it has logged nothing"
                raise ServiceFailed(f"pgbouncer did not start: {log}") from error
            time.sleep(POLL_SECONDS)


def _stop(process: subprocess.Popen[bytes]) -> None:
    # Its SIGINT waits for clients to leave; SIGTERM ends at once.
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
