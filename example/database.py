"""
Choose the database the demo runs on: the one that is named, an embedded PostgreSQL, or SQLite.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from example import services

__all__ = ["Choice", "chosen"]

DRIVERS = {"postgresql": "psycopg", "mysql": "MySQLdb"}


@dataclass(frozen=True, slots=True)
class Choice:
    """
    Name a database, and say why this one.
    """

    url: str
    words: str


@contextmanager
def chosen(*, sqlite: bool) -> Iterator[Choice]:
    """
    Keep a database for as long as the block runs; what was started for it is stopped afterwards.

    Raises: ServiceFailed when the embedded server does not start, or DATABASE_URL makes no sense.
    """
    url = os.environ.get("DATABASE_URL")
    if url and not sqlite:
        refuse_unusable(url)
        yield Choice(url, "the database that DATABASE_URL names; its tables stay there")
        return
    with ExitStack() as stack:
        if sqlite:
            yield stack.enter_context(sqlite_file("as asked"))
            return
        try:
            if find_spec("psycopg") is None:
                raise services.ServiceMissing("The PostgreSQL driver", "the Python package psycopg")
            facts = stack.enter_context(services.postgres())
        except services.ServiceMissing as missing:
            yield stack.enter_context(sqlite_file(f"because: {str(missing).rstrip('.')}"))
            return
        yield Choice(services.database_url(facts), "a PostgreSQL of its own, which ends with the demo")


def refuse_unusable(url: str) -> None:
    """
    Refuse a URL that can't be read, or whose driver is missing.
    """
    try:
        engine = str(services.database_from_url(url)["ENGINE"])
    except ValueError as error:
        raise services.ServiceFailed(f"DATABASE_URL can't be read: {error}") from error
    driver = DRIVERS.get(engine.rpartition(".")[2])
    if driver is not None and find_spec(driver) is None:
        raise services.ServiceFailed(f"DATABASE_URL names a database whose driver, {driver}, is not installed.")


@contextmanager
def sqlite_file(why: str) -> Iterator[Choice]:
    """
    Give a SQLite file in a temporary folder.
    """
    with tempfile.TemporaryDirectory(prefix="dl-demo-") as folder:
        file = Path(folder, "shop.sqlite3")
        yield Choice(f"sqlite:///{file}", f"SQLite, {why}. Some chapters differ a little and say so")
