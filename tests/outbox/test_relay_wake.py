"""
Prove that events are delivered at once, woken by a word or soon after one, and never left to the next poll.

Relays here look by themselves every 30 seconds, so that only a word explains what is quick.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.db import transaction

from django_logic.outbox.relay.lane import Lane
from tests.app.models import Ticket
from tests.outbox.relays import SELDOM, ask, is_all_sent, relay, tickets
from tests.outbox.seen import now, sights
from tests.races.together import together
from tests.worker.looks import sql, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("sights_are_kept")]

#: Seconds in which an event has arrived on a busy machine, far below those between two polls.
SOON = 2.0
#: The same, where a relay may first wait a second for its database.
WITH_A_PAUSE = 4.0
#: Looks by the clock are as rare as polls, so words alone are at work.
WORDS_ALONE = {"django_logic.outbox.relay.wake.FIRST_LOOK": 30.0}
#: Longer than the time in which a process sends no second word.
AFTER_THE_QUIET = 0.05

TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s AND "

Commits = dict[tuple[str, int], datetime]


def lags(commits: Commits) -> list[float]:
    """
    Return for each event how long after the commit its subscriber was called, the slowest last.
    """
    seen = {(sight.key, sight.sequence): sight.at for sight in sights()}
    return sorted((seen[place] - committed).total_seconds() for place, committed in commits.items())


def alone(ticket: Ticket) -> None:
    """
    Move an object outside any transaction.
    """
    ask(ticket, "alone")


def within_a_transaction(ticket: Ticket) -> None:
    """
    Move an object in the caller's transaction, which is short.
    """
    with transaction.atomic():
        ask(ticket, "within")


def within_a_savepoint(ticket: Ticket) -> None:
    """
    Move an object in a savepoint, after one that was rolled back together with another move.
    """
    with transaction.atomic():
        with transaction.atomic():
            ask(ticket, "undone")
            transaction.set_rollback(True)
        with transaction.atomic():
            ask(ticket, "within")


def test_word_that_comes_between_two_waits_is_heard() -> None:
    """
    A word that arrives while a relay is not waiting, as in the pause after the database failed, makes it look as often
    as any other word: whoever sent none, since one was just sent, relies on that.
    """
    lane = Lane("default", "subscribers", "", 30.0, must_stop=lambda: False)
    lane.pauses = iter([30.0])
    lane.news.set()

    began = time.monotonic()
    lane.turn()
    took = time.monotonic() - began

    assert took < SOON


@pytest.mark.parametrize("move", [alone, within_a_transaction, within_a_savepoint])
def test_idle_relay_is_woken_by_a_move(move: Callable[[Ticket], None]) -> None:
    """
    Each of five moves, apart from each other, arrives by its own word.
    """
    (ticket,) = tickets(1)
    commits: Commits = {}

    with relay(*SELDOM, constants=WORDS_ALONE) as running:
        running.wait_ready()
        for number in range(1, 6):
            time.sleep(AFTER_THE_QUIET)
            move(ticket)
            commits[str(ticket.pk), number] = now()
            until(is_all_sent(), 10)

    assert lags(commits)[-1] < SOON


def test_last_event_of_a_burst_is_not_left_to_the_poll() -> None:
    """
    Moves that send no word, since one has just been sent, are found as quickly: thirty bursts of random gaps, each
    followed by silence.
    """
    chance = random.Random(20261130)  # noqa: S311 (spreads moves, no secret)
    objects = tickets(3)
    commits: Commits = {}
    count = dict.fromkeys(range(3), 0)

    with relay(*SELDOM) as running:
        running.wait_ready()
        for _burst in range(30):
            for _move in range(chance.randint(2, 6)):
                number = chance.randrange(3)
                chance.choice([alone, within_a_transaction, within_a_savepoint])(objects[number])
                count[number] += 1
                commits[str(objects[number].pk), count[number]] = now()
                time.sleep(chance.choice([0, 0.002, 0.005, 0.01, 0.019, 0.03]))
            until(is_all_sent(), 10)
            time.sleep(chance.uniform(0, 0.2))

    assert lags(commits)[-1] < SOON


def test_long_transactions_beside_short_ones_are_not_left_to_the_poll() -> None:
    """
    Their words are suppressed by those of other threads whenever these have just sent one.
    """
    objects = tickets(4)
    commits: Commits = {}

    def write(number: int) -> None:
        chance = random.Random(number)  # noqa: S311 (spreads moves, no secret)
        for count in range(1, 26):
            with transaction.atomic():
                ask(objects[number], "long")
                time.sleep(chance.uniform(0, 0.01 * number * 2))
            commits[str(objects[number].pk), count] = now()
            time.sleep(chance.uniform(0, 0.04))
            if chance.random() < 0.3:
                until(is_all_sent(objects[number]), 10)

    with relay(*SELDOM) as running:
        running.wait_ready()
        outcomes: list[Any] = together([lambda number=number: write(number) for number in range(4)])
        until(is_all_sent(), 10)

    assert [outcome.error for outcome in outcomes] == [None] * 4
    assert lags(commits)[-1] < SOON


@pytest.mark.parametrize("whose", ["query LIKE 'LISTEN%%'", "TRUE"])
def test_words_that_nobody_heard_are_made_up_for(whose: str) -> None:
    """
    The listening session, or all sessions, are ended around a move: whoever listens again looks for itself.
    """
    chance = random.Random(20261130)  # noqa: S311 (spreads moves, no secret)
    (ticket,) = tickets(1)
    commits: Commits = {}

    with relay(*SELDOM) as running:
        for number in range(1, 11):
            running.wait_ready()
            sql(TERMINATE + whose, running.name)
            time.sleep(chance.uniform(0, 0.03))
            ask(ticket, "one")
            commits[str(ticket.pk), number] = now()
            until(is_all_sent(), 10)

    assert lags(commits)[-1] < WITH_A_PAUSE
