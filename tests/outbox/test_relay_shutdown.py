"""
Prove how a relay stops, and what it holds of the database while a subscriber works.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time

import pytest
from django.db import connection, transaction

from django_logic.outbox.models import DeliveryState, InboxEntry, OutboxDelivery
from django_logic.outbox.relay.running import Relay as Running
from django_logic.outbox.relay.running import RelayPlan
from tests.app.models import Ticket
from tests.outbox.relays import OFTEN, ask, deliveries, is_all_sent, relay, run_relay, tickets
from tests.outbox.seen import sequences
from tests.outbox.servers import HOST, silent
from tests.worker.gates import Gate
from tests.worker.looks import sql, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("sights_are_kept")]

#: A lease no test waits for: what is delivered sooner was put back.
LONG = {"OUTBOX_LEASE_SECONDS": 600}
STOPPING = "Stopping:"
OPEN = "SELECT pid, state, query FROM pg_stat_activity WHERE application_name = %s AND xact_start IS NOT NULL"
LOCKS = """
SELECT held.relation::regclass::text, held.mode FROM pg_locks held JOIN pg_stat_activity session USING (pid)
WHERE session.application_name = %s AND held.locktype <> 'virtualxid'
"""
WAITING = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"


def fates(ticket: Ticket) -> list[tuple[str, int]]:
    """
    Return how far each event of an object is, and how many attempts were counted.
    """
    return [(row.state, row.attempts) for row in deliveries(ticket)]


def test_subscriber_that_waits_holds_no_transaction_and_no_lock(gate: Gate) -> None:
    """
    While a subscriber works, no session of the relay is in a transaction, and every row can be locked.

    Source: sentry#85241.
    """
    first, second = tickets(2)
    ask(first, f"wait {gate.path}", "two")
    ask(second, "one")

    with relay(*OFTEN) as running:
        gate.arrival()
        opened = [sql(OPEN, running.name) for _count in range(20)]
        locks = sql(LOCKS, running.name)
        free = sql("SELECT id FROM django_logic_outbox_outboxdelivery FOR UPDATE SKIP LOCKED")
        sessions = running.sessions()
        gate.let_go()
        until(is_all_sent())

    assert len(sessions) >= 2
    assert opened == [[]] * 20
    assert locks == []
    assert len(free) == len(deliveries()) == 3


def test_relay_keeps_its_sessions() -> None:
    """
    It does not connect anew for each look, whatever CONN_MAX_AGE is for requests, which is 0 in Django.
    """
    (ticket,) = tickets(1)

    with relay(*OFTEN, databases={"default": {"CONN_MAX_AGE": 0}}) as running:
        found = set()
        for number in range(1, 6):
            ask(ticket, "one")
            until(lambda number=number: sequences(ticket.pk) == [*range(1, number + 1)] and is_all_sent()())
            found |= set(running.sessions())

    assert len(found) <= 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_event_in_work_is_finished_and_the_rest_goes_back(number: signal.Signals, gate: Gate) -> None:
    """
    Told to stop in the middle of a batch, a relay ends with status 0; what it did is marked, and what it did not begin
    is pending without an attempt, so the next relay need not wait for the lease.
    """
    done, stopped, claimed = tickets(3)
    ask(done, "one")
    ask(stopped, f"wait {gate.path}", "two")
    ask(claimed, "one", "two")

    with relay(*OFTEN, logic=LONG) as running:
        gate.arrival()
        running.signal(number)
        running.wait_said(STOPPING)
        gate.let_go()
        status = running.wait()
    after = [fates(ticket) for ticket in (done, stopped, claimed)]
    leased = OutboxDelivery.objects.filter(lease_token__isnull=False).count()
    drained = run_relay("--drain")

    assert (status, leased) == (0, 0)
    assert after == [[("sent", 1)], [("sent", 1), ("pending", 0)], [("pending", 0), ("pending", 0)]]
    assert drained == (0, "3 events delivered.")
    assert [sequences(ticket.pk) for ticket in (done, stopped, claimed)] == [[1], [1, 2], [1, 2]]


def test_idle_relay_leaves_at_once() -> None:
    """
    It does not wait for its next look.
    """
    with relay("--poll", "600") as running:
        running.wait_ready()
        began = time.monotonic()
        running.term()
        status = running.wait()
        took = time.monotonic() - began

    assert status == 0
    assert took < 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_a_hung_relay(number: signal.Signals) -> None:
    """
    The status is 128 and the number of the first signal.
    """
    (ticket,) = tickets(1)
    ask(ticket, "hang")

    with relay(*OFTEN, "--grace", "600") as running:
        until(lambda: sequences(ticket.pk))
        running.signal(number)
        running.wait_said(STOPPING)
        assert running.is_running()
        running.term()
        status = running.wait()

    assert status == 128 + number


def test_hung_subscriber_is_left_after_the_grace_and_its_event_delivered_by_another(gate: Gate) -> None:
    """
    The relay ends with another status than 0; its event is delivered when the lease is over.
    """
    (ticket,) = tickets(1)
    ask(ticket, f"wait {gate.path}", "two")

    with relay(*OFTEN, "--grace", "0.5", logic={"OUTBOX_LEASE_SECONDS": 2}) as running:
        gate.arrival()
        running.term()
        status = running.wait()
    gate.let_go()
    with relay(*OFTEN, logic={"OUTBOX_LEASE_SECONDS": 2}):
        until(is_all_sent())

    assert status == 128 + signal.SIGTERM
    assert sequences(ticket.pk) == [1, 1, 2]
    assert [row.state for row in deliveries(ticket)] == [DeliveryState.SENT] * 2


def test_other_signals_are_taken_off_the_pipe() -> None:
    """
    A signal that the project handles wakes the relay once, and does not keep it busy for ever.
    """
    running = Running(RelayPlan(destinations=()))
    running.threads = dict.fromkeys(running.members, threading.current_thread())  # no other is started
    os.write(running.writer, b"x")

    running.turn()

    assert select.select([running.reader], [], [], 0)[0] == []


def test_stop_does_not_wait_for_upkeep() -> None:
    """
    While upkeep waits for somebody's lock a relay ends at once when it is told to.
    """
    often = {"django_logic.outbox.relay.members.PURGE_EVERY": 0.01}

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {InboxEntry._meta.db_table} IN ACCESS EXCLUSIVE MODE")
        with relay(*OFTEN, constants=often) as running:
            until(lambda: sql(WAITING, running.name))
            running.term()

            assert running.wait(10) == 0


def test_stop_does_not_wait_for_a_server_that_is_silent() -> None:
    """
    Where the database to listen on takes the connection and says nothing, events are delivered, and a stop is heard.
    """
    (ticket,) = tickets(1)
    ask(ticket, "one")

    with (
        silent() as port,
        relay(*OFTEN, "--listen-database", "other", databases={"other": {"HOST": HOST, "PORT": port}}) as running,
    ):
        until(is_all_sent())
        running.term()

        assert running.wait(10) == 0
