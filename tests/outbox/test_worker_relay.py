"""
Prove that a worker keeps a relay beside its children: it delivers, is replaced when it dies, and ends with the worker.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from django_logic.outbox.models import OutboxDelivery
from tests.outbox import relay_app
from tests.outbox.relays import ask, is_all_sent, tickets
from tests.outbox.seen import sequences, sights
from tests.worker.altered import altered
from tests.worker.gates import Gate
from tests.worker.harness import Worker, worker
from tests.worker.looks import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("sights_are_kept")]


@contextmanager
def worker_with_relay(*arguments: str) -> Iterator[Worker]:
    """
    Start a worker that delivers events, too.
    """
    overlay = altered()
    overlay["INSTALLED_APPS"].append(relay_app.__name__)
    with worker(args=["--relay", *arguments], settings=overlay) as running:
        yield running


def relay_of(running: Worker) -> int:
    """
    Return the process that delivered last.
    """
    return sights()[-1].pid


def test_worker_delivers_events_in_a_process_of_its_own() -> None:
    """
    With --relay a worker delivers what its objects tell, in a child of its own, and SIGTERM ends all with status 0.
    """
    (ticket,) = tickets(1)

    with worker_with_relay() as running:
        running.wait_ready()
        ask(ticket, "one", "two")
        until(is_all_sent())
        assert relay_of(running) in running.children()
        assert "5 for the relay" in running.log
        running.term()
        status = running.wait()

    assert sequences(ticket.pk) == [1, 2]
    assert status == 0


def test_relay_that_dies_is_replaced() -> None:
    """
    A relay that is killed is missed and replaced, and its successor goes on.
    """
    (ticket,) = tickets(1)

    with worker_with_relay() as running:
        running.wait_ready()
        ask(ticket, "one")
        until(is_all_sent())
        first = relay_of(running)
        os.kill(first, signal.SIGKILL)
        until(lambda: "The relay ended" in running.log)
        ask(ticket, "two")
        until(is_all_sent())

        assert relay_of(running) != first
    assert sequences(ticket.pk) == [1, 2]


def test_relay_finishes_what_it_delivers_when_the_worker_stops(gate: Gate) -> None:
    """
    SIGTERM to the worker lets the message in work finish; the rest goes back with no attempt spent.
    """
    (ticket,) = tickets(1)
    ask(ticket, f"wait {gate.path}", "two")

    with worker_with_relay() as running:
        gate.arrival()
        running.term()
        until(lambda: "Stopping: what is being published" in running.log)
        gate.let_go(9)
        status = running.wait()

    assert status == 0
    assert sequences(ticket.pk) == [1]
    assert list(OutboxDelivery.objects.values_list("state", "attempts")) == [("sent", 1), ("pending", 0)]


@pytest.mark.parametrize(
    ("arguments", "missing", "told"),
    [
        (["--drain"], "", "dl_relay --drain"),
        ([], "django_logic.outbox", "needs 'django_logic.outbox' in INSTALLED_APPS"),
    ],
)
def test_worker_refuses_a_relay_that_could_not_run(arguments: list[str], missing: str, told: str) -> None:
    """
    A wrong option is one clear line and status 1.
    """
    overlay = altered()
    overlay["INSTALLED_APPS"] = [name for name in overlay["INSTALLED_APPS"] if name != missing]

    with worker(args=["--relay", *arguments], settings=overlay) as running:
        status = running.wait()

        assert status == 1
        assert told in running.log
        assert "Traceback" not in running.log
