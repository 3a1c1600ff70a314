"""
Send one recorded statement again and again through a bare driver cursor.

This is the yardstick: whatever a library adds to its own statement shows as distance from here.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection, models
from django.utils import timezone
from psycopg import sql
from psycopg.types.json import Jsonb
from psycopg.types.string import StrDumper

from harness.contender import START, TARGET, NotAvailable, WrongResult, check_moved, settle_tables, stage

# A key no other parameter of a move can equal, so that it is recognised among them.
PROBE_KEY = 8_127_364_509_182


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """
    A statement and the parameters that moved the order with the key ``PROBE_KEY``.
    """

    text: str
    parameters: Mapping[str, Any] | Sequence[Any]

    def bind(self, key: int, start: str = START, target: str = TARGET) -> Any:
        """
        Return the parameters for another order, other states, fresh ids and the present time.
        """
        known: dict[Any, Any] = {PROBE_KEY: key, str(PROBE_KEY): str(key), START: start, TARGET: target}
        now = timezone.now()

        def translate(value: Any) -> Any:
            if isinstance(value, uuid.UUID):
                return known.setdefault(value, uuid.uuid4())
            if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", value):
                return known.setdefault(value, str(uuid.uuid4()))
            if hasattr(value, "tzinfo"):
                return now
            if isinstance(value, (str, int)):
                return known.get(value, value)
            if isinstance(value, (list, tuple)):
                return type(value)(translate(item) for item in value)
            return value

        if isinstance(self.parameters, Mapping):
            return {name: translate(value) for name, value in self.parameters.items()}
        return [translate(value) for value in self.parameters]


@dataclass(slots=True, kw_only=True)
class StatementContender:
    """
    Move rows with the bare statement; optionally behind BEGIN and a locking read.
    """

    key: str
    label: str
    model: type[models.Model]
    history: type[models.Model]
    source: Callable[[], Statement]
    locks_first: bool = False
    is_prepared: bool = False
    _statement: Statement | None = field(default=None, init=False)

    def setup(self) -> None:
        """
        Obtain the statement and try it once.

        Raises: NotAvailable when the server refuses it in this form.
        """
        self._statement = self.source()
        try:
            self.run(1)
        except psycopg.Error as error:
            raise NotAvailable(f"the server refused the statement in this form: {error}") from error

    def run(self, moves: int) -> float:
        """
        Time the statements alone; parameters are bound beforehand.
        """
        statement = self._statement or self.source()
        keys = [order.pk for order in stage(self.model, moves)]
        before = self.history._base_manager.count()
        bound = [(key, self._bind(statement, key)) for key in keys]
        settle_tables()
        with bare_connection(is_prepared=self.is_prepared) as session:
            send = self._locked if self.locks_first else self._plain
            started = time.perf_counter()
            for key, parameters in bound:
                send(session, key, statement.text, parameters)
            seconds = time.perf_counter() - started
        check_moved(self.model, keys)
        if (written := self.history._base_manager.count() - before) != moves:
            raise WrongResult(f"{self.key}: expected {moves} history rows, found {written}")
        return seconds

    def statements(self) -> int | None:
        """
        Count what one move sends.
        """
        return 4 if self.locks_first else 1

    def _bind(self, statement: Statement, key: int) -> Any:
        parameters = statement.bind(key)
        if not self.is_prepared or not isinstance(parameters, dict):
            return parameters
        # Texts are typed on a preparing connection, so JSON has to say that it is JSON.
        return {name: _typed(value) for name, value in parameters.items()}

    @staticmethod
    def _plain(session: psycopg.Connection, key: int, text: str, parameters: Any) -> None:
        cursor = session.execute(text.encode(), parameters)
        if cursor.description is not None:
            cursor.fetchone()

    def _locked(self, session: psycopg.Connection, key: int, text: str, parameters: Any) -> None:
        with session.transaction():
            session.execute(self._reading(), [key]).fetchone()
            self._plain(session, key, text, parameters)

    def _reading(self) -> bytes:
        return locking_read(self.model)


def _typed(value: Any) -> Any:
    is_json = isinstance(value, str) and value.startswith("{") and value.endswith("}")
    return Jsonb(json.loads(value)) if is_json else value


_READS: dict[type[models.Model], bytes] = {}


def locking_read(model: type[models.Model]) -> bytes:
    """
    Compose the statement that locks a row and reads all its columns.
    """
    if model not in _READS:
        columns = sql.SQL(", ").join([sql.Identifier(str(each.column)) for each in model._meta.concrete_fields])
        table = sql.Identifier(model._meta.db_table)
        text = sql.SQL("SELECT {} FROM {} WHERE id = %s FOR UPDATE").format(columns, table)
        _READS[model] = text.as_bytes(None)
    return _READS[model]


def bare_connection(*, is_prepared: bool = False) -> psycopg.Connection:
    """
    Open an autocommit connection outside Django.

    Parameters are bound by the client, as Django's own connections do by default,
    so the server receives the same bytes; ``is_prepared`` gives the driver's own default instead.
    """
    database = settings.DATABASES["default"]
    options: dict[str, Any] = {}
    if not is_prepared:
        options = {"cursor_factory": psycopg.ClientCursor, "prepare_threshold": None}
    session = psycopg.connect(
        host=database["HOST"],
        port=database["PORT"],
        user=database["USER"],
        dbname=database["NAME"],
        autocommit=True,
        **options,
    )
    if is_prepared:
        # Where one parameter serves two columns the server would deduce two types for a text of unknown type.
        session.adapters.register_dumper(str, StrDumper)
    return session


def record(model: type[models.Model], move: Callable[[Any], object]) -> Statement:
    """
    Move one order and return the single statement that did it.

    Raises: NotAvailable when the move took more than one statement.
    """
    model._base_manager.filter(pk=PROBE_KEY).delete()
    model._base_manager.bulk_create([model(pk=PROBE_KEY, customer="probe")])
    order = model._base_manager.get(pk=PROBE_KEY)
    sent: list[tuple[str, Any]] = []

    def listen(execute: Any, text: str, parameters: Any, many: bool, context: Any) -> Any:
        sent.append((text, parameters))
        return execute(text, parameters, many, context)

    with connection.execute_wrapper(listen):
        move(order)
    if len(sent) != 1:
        raise NotAvailable(f"the fast path sent {len(sent)} statements where one was expected")
    text, parameters = sent[0]
    return Statement(text=text, parameters=parameters)
