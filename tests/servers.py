"""
Start the servers that a test run needs, before pytest-django reads the settings.

`DL_DATABASE` names the database: postgres (default), sqlite or mariadb. `DL_DATABASE_URL` uses a server that is
there already. A missing server skips the run in one line, or fails it with `DL_REQUIRE_SERVICES=1`.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from example import services

MISSING = pytest.StashKey[str]()
NOTHING_TESTED = "SKIPPED, nothing was tested:"
DRIVERS = {"postgres": "psycopg", "mariadb": "MySQLdb"}
EXTRAS = {
    "postgres": "django-logic[postgres]",
    "mariadb": "django-logic[mysql] (it needs the Debian packages libmariadb-dev, pkg-config and gcc)",
}


@contextmanager
def sqlite() -> Iterator[Mapping[str, Any]]:
    """
    Give a folder for SQLite files, since threads can't share a database in memory.
    """
    with tempfile.TemporaryDirectory(prefix="dl-sqlite-") as folder:
        yield {"ENGINE": "django.db.backends.sqlite3", "NAME": str(Path(folder, "default.sqlite3"))}


STARTERS = {"postgres": services.postgres, "sqlite": sqlite, "mariadb": services.mariadb}


def are_required() -> bool:
    """
    Tell whether a missing service fails the run instead of skipping it.
    """
    return os.environ.get("DL_REQUIRE_SERVICES", "") not in ("", "0")


def start(database: str) -> ExitStack:
    """
    Start a database and name it in the environment until the stack is closed.

    Raises: ServiceMissing when its server or its driver is not installed.
    """
    if database not in STARTERS:
        raise pytest.UsageError(f"DL_DATABASE={database!r} is unknown; choose one of {', '.join(STARTERS)}.")
    driver = DRIVERS.get(database)
    if driver is not None and find_spec(driver) is None:
        raise services.ServiceMissing(f"The driver {driver} for {database}", EXTRAS[database])
    with ExitStack() as stack:
        facts = stack.enter_context(STARTERS[database]())
        stack.enter_context(_environment("DL_DATABASE_URL", services.database_url(facts)))
        return stack.pop_all()


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _start_redis(stack: ExitStack) -> None:
    if "DL_REDIS_URL" not in os.environ and find_spec("redis") is not None:
        url = stack.enter_context(services.redis())
        stack.enter_context(_environment("DL_REDIS_URL", url))


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """
    Start the database ahead of pytest-django, whose own hook is no wrapper and so runs later.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has what it starts in the background ignore Ctrl-C; programs under test would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    stack = ExitStack()
    early_config.add_cleanup(stack.close)
    try:
        if "DL_DATABASE_URL" not in os.environ:
            stack.push(start(os.environ.get("DL_DATABASE", "postgres")))
    except services.ServiceMissing as missing:
        early_config.stash[MISSING] = str(missing)
    else:
        try:
            _start_redis(stack)
        except services.ServiceMissing as missing:
            stack.enter_context(_environment("DL_REDIS_MISSING", str(missing)))
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """
    End a run whose database is missing, before anything is collected.
    """
    missing = session.config.stash.get(MISSING, None)
    if missing is not None and are_required():
        pytest.exit(f"FAILED, DL_REQUIRE_SERVICES is set: {missing}", returncode=1)
    if missing is not None:
        pytest.exit(f"{NOTHING_TESTED} {missing}", returncode=0)


def pytest_report_header() -> str:
    """
    Name the database at the top of the report.
    """
    return f"database: {os.environ.get('DL_DATABASE_URL', 'none')}, redis: {os.environ.get('DL_REDIS_URL', 'none')}"
