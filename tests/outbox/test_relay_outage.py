"""
Prove that destinations, databases, sessions and words that are away cost time only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_logic.outbox import metrics
from example.services import ServiceMissing
from tests import servers
from tests.outbox.relays import OFTEN, SELDOM, ask, deliveries, hear_probes, is_all_sent, relay, tickets
from tests.outbox.seen import overtaking, sequences, sights, table_of_sights
from tests.worker.harness import database_facts
from tests.worker.looks import sql, until
from tests.worker.pooler import Pooler, pgbouncer
from tests.worker.private import private_server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("sights_are_kept")]

TERMINATE = "SELECT COUNT(PG_TERMINATE_BACKEND(pid)) FROM pg_stat_activity WHERE application_name = %s"
OFTEN_PROVED = {"django_logic.listener.PROVE_EVERY": 0.3, "django_logic.listener.ANSWER_WITHIN": 0.2}
DEAF = "Notifications do not arrive"


@pytest.fixture
def pooler() -> Iterator[Pooler]:
    """
    Give a pgbouncer in transaction mode in front of the test database.
    """
    try:
        with pgbouncer(database_facts("pooled", {})["default"]) as running:
            yield running
    except ServiceMissing as missing:
        (pytest.fail if servers.are_required() else pytest.skip)(str(missing))


def publishers(folder: Path, *names: str) -> dict[str, Any]:
    """
    Describe destinations that are there while the file of their name is.
    """
    backend = "tests.outbox.relay_app.publishers.Door"
    return {name: {"BACKEND": backend, "OPTIONS": {"name": name, "path": str(folder / name)}} for name in names}


class TestDestination:
    """
    One that takes nothing pauses alone, and costs no message an attempt.
    """

    def test_it_is_drained_once_it_is_back_and_others_go_on_meanwhile(self, tmp_path: Path, settings: Any) -> None:
        """
        Source: wolverine#1430.
        """
        logic = {"OUTBOX_PUBLISHERS": publishers(tmp_path, "up", "down"), "OUTBOX_MAX_ATTEMPTS": 2}
        settings.DJANGO_LOGIC = logic
        (tmp_path / "up").touch()
        objects = tickets(5)
        for ticket in objects:
            ask(ticket, "one", "two")

        with relay(*OFTEN, logic=logic) as running:
            for _count in range(3):
                until((tmp_path / "down.tried").exists)
                (tmp_path / "down.tried").unlink()
            ask(objects[0], "three")
            until(lambda: len(sights("up")) == 11)
            waiting = deliveries(destination="down")
            (tmp_path / "down").touch()
            until(is_all_sent())
            assert running.is_running()

        assert {(row.state, row.attempts) for row in waiting} <= {("pending", 0), ("leased", 1)}
        assert len(waiting) == 11
        assert "the door is closed" in waiting[0].error
        assert {row.attempts for row in deliveries()} == {1}
        assert len(sights("down")) == 11
        assert overtaking([*sights("up"), *sights("down")]) == []

    def test_figures_tell_of_it(self, tmp_path: Path, settings: Any) -> None:
        """
        What waits for a destination that is away is counted there, and outages are no failures.
        """
        logic = {"OUTBOX_PUBLISHERS": publishers(tmp_path, "up", "down")}
        settings.DJANGO_LOGIC = logic
        (tmp_path / "up").touch()
        (ticket,) = tickets(1)
        ask(ticket, "one")

        with relay(*OFTEN, logic=logic) as running:
            until((tmp_path / "down.tried").exists)
            until(lambda: sights("up"))
            running.term()
            running.wait()
        up, down = metrics.figures()

        assert (up.pending, down.pending) == (0, 1)
        assert set(up.attempts) == {"sent"}
        assert set(down.attempts) == {"unavailable"}


class TestDatabase:
    """
    A relay outlives its sessions and its server.
    """

    def test_relay_goes_on_when_all_its_sessions_are_ended(self) -> None:
        """
        Ended in work or at rest, it connects anew by itself, and hears words again.
        """
        objects = tickets(6)

        with relay(*OFTEN, logic={"OUTBOX_LEASE_SECONDS": 2}, constants=OFTEN_PROVED) as running:
            running.wait_ready()
            for _count in range(5):
                for ticket in objects:
                    ask(ticket, "sleep 0.02")
                until(sights)
                until(lambda: sql(TERMINATE, running.name)[0][0])
            until(is_all_sent(), 60)
            running.wait_ready()
            log = running.log

        assert {sight.event for sight in sights()} == {row.message_id for row in deliveries()}
        assert overtaking(sights()) == []
        assert DEAF not in log

    def test_idle_relay_without_sessions_hears_words_again(self) -> None:
        """
        All sessions are ended while nothing happens: it listens again at once, and is not deaf.
        """
        (ticket,) = tickets(1)

        with relay(*SELDOM, constants=OFTEN_PROVED) as running:
            lost = running.wait_ready().listener()
            hear_probes(2)
            sql(TERMINATE, running.name)
            until(lambda: running.listener() not in (None, lost))
            hear_probes(3)
            ask(ticket, "one")
            until(is_all_sent(), 10)
            log = running.log

        assert DEAF not in log

    def test_events_are_delivered_while_nobody_listens(self, tmp_path: Path) -> None:
        """
        LISTEN goes where no server is, and events arrive by polling.
        """
        objects = tickets(3)
        nowhere = {"other": {"HOST": str(tmp_path)}}

        with relay("--poll", "0.2", "--listen-database", "other", databases=nowhere) as running:
            running.wait_said("LISTEN was lost")
            for ticket in objects:
                ask(ticket, "one")
                until(is_all_sent(), 10)

        assert [sequences(ticket.pk) for ticket in objects] == [[1]] * 3


def test_relay_outlives_a_crash_of_the_server() -> None:
    """
    PostgreSQL is stopped without a farewell and started again: nothing committed is lost, nothing overtakes.
    """
    with private_server() as server, table_of_sights():
        objects = tickets(5)
        with relay(*OFTEN, logic={"OUTBOX_LEASE_SECONDS": 2}) as running:
            for _count in range(2):
                for ticket in objects:
                    ask(ticket, "sleep 0.05", "two")
                until(sights)
                connection.close()
                server.restart()
            until(is_all_sent(), 60)
            assert running.is_running()
            ask(objects[0], "last")
            until(is_all_sent(), 10)

        assert {sight.event for sight in sights()} >= {row.message_id for row in deliveries()}
        assert overtaking(sights()) == []


class TestBehindPgbouncer:
    """
    In transaction mode words get lost, and nothing else does. Source: procrastinate#258.
    """

    def test_events_are_delivered_by_polling_and_the_loss_is_said_once(self, pooler: Pooler) -> None:
        """
        Two relays share what sessions there are.
        """
        objects = tickets(5)
        databases = {"default": pooler.facts}

        with (
            relay("--poll", "0.2", databases=databases, constants=OFTEN_PROVED) as running,
            relay("--poll", "0.2", databases=databases),
        ):
            running.wait_said(DEAF)
            for ticket in objects:
                ask(ticket, "one", "two", "three")
            until(is_all_sent())
            hear_probes(3)
            log = running.log

        assert [sequences(ticket.pk) for ticket in objects] == [[1, 2, 3]] * 5
        assert log.count(DEAF) == 1

    def test_direct_database_for_words_wakes_at_once(self, pooler: Pooler) -> None:
        """
        With --listen-database words arrive past the pooler.
        """
        databases = {"default": pooler.facts, "other": database_facts("direct", {})["default"]}
        (ticket,) = tickets(1)

        with relay(*SELDOM, "--listen-database", "other", databases=databases, constants=OFTEN_PROVED) as one:
            hear_probes(2)
            ask(ticket, "one")
            until(is_all_sent(), 10)
            log = one.log

        assert DEAF not in log
