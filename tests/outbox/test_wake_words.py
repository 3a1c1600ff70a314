"""
Test the word that wakes relays: few of them, after the commit only, and never at the cost of a move.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from django_logic import Transition
from django_logic.listener import Listener
from django_logic.outbox.models import OutboxMessage
from django_logic.outbox.relay import wake as waking
from django_logic.wakeup import EVENTS
from tests.app.models import Ticket
from tests.flows import Bind, declare

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]

LAST = "that was all"


class Ear:
    """
    Listen to the words on the channel of events.
    """

    def __init__(self, listening: Any) -> None:
        self.listening = listening
        listening.execute(f"LISTEN {EVENTS.name}")

    def count(self) -> int:
        """
        Return how many words came until now: a word of our own, which comes after them, ends the count.
        """
        self.listening.execute("SELECT PG_NOTIFY(%s, %s)", [EVENTS.name, LAST])
        deadline, count = time.monotonic() + 30, 0
        while time.monotonic() < deadline:
            for word in self.listening.notifies(timeout=1):
                if word.payload == LAST:
                    return count
                count += 1
        raise AssertionError("our own word never came")


@pytest.fixture(name="ear")
def opened_ear(transactional_db: None, monkeypatch: pytest.MonkeyPatch, bind: Bind) -> Iterator[Ear]:
    """
    Listen, in a process that has sent no word yet and keeps quiet for an hour after the first.
    """
    monkeypatch.setattr(waking, "_sent_at", {})
    monkeypatch.setattr(waking, "QUIET_TIME", 3600)
    bind(declare(Transition("open", ["new"], "opened"), Transition("shut", ["opened"], "shut")))
    connection.ensure_connection()
    with psycopg.connect(
        connection.connection.info.dsn, password=connection.settings_dict["PASSWORD"] or None, autocommit=True
    ) as listening:
        yield Ear(listening)


def test_one_word_is_sent_in_the_quiet_time(ear: Ear, ticket: Ticket, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The second move sends no word within the quiet time, and one after it.
    """
    ticket.flow.open()
    ticket.flow.shut()
    within = ear.count()
    monkeypatch.setattr(waking, "QUIET_TIME", 0)
    Ticket.objects.create().flow.open()

    assert (within, ear.count()) == (1, 1)


def test_without_a_relay_of_ours_nobody_is_woken(ear: Ear, ticket: Ticket, settings: Any) -> None:
    """
    Where others read the database's log, a move writes its message and sends no word.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_RELAY": "none"}

    ticket.flow.open()

    assert (OutboxMessage.objects.count(), ear.count()) == (1, 0)


def test_rollback_wakes_nobody(ear: Ear, ticket: Ticket) -> None:
    """
    A move that is rolled back sends no word, nor keeps the next one from sending its own.
    """
    with transaction.atomic():
        ticket.flow.open()
        transaction.set_rollback(True)
    rolled_back = ear.count()
    ticket.refresh_from_db()
    ticket.flow.open()

    assert (rolled_back, ear.count()) == (0, 1)


def test_word_that_can_not_be_sent_costs_no_move(ear: Ear, ticket: Ticket, caplog: Any) -> None:
    """
    A database that refuses the word has committed the move and its message, and the log says so.
    """

    def refuse(execute: Any, statement: str, *rest: Any) -> Any:
        if "PG_NOTIFY" in statement:
            raise OperationalError("too many words")
        return execute(statement, *rest)

    with connection.execute_wrapper(refuse):
        ticket.flow.open()

    ticket.refresh_from_db()
    assert (ticket.state, OutboxMessage.objects.count(), ear.count()) == ("opened", 1, 0)
    assert "too many words" in caplog.text


def test_listener_that_loses_each_connection_takes_its_time() -> None:
    """
    The first loss is made up for at once; connections that hear nothing before they are lost come less and less often.
    """
    listener = Listener(EVENTS, "default", "default", "a test")
    assert listener.attend()
    listener.lose(OSError("gone"))
    assert listener.attend()
    listener.lose(OSError("gone again"))

    assert not listener.attend()
    assert listener.fileno() is None
