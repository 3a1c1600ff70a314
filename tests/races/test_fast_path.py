"""
Prove that moves of one statement, which take no lock first, keep their promises when they race.
"""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from django_logic.exceptions import InvalidTransition, TransitionNotAllowed
from tests.app.hooked import fresh, moves, sequences, stored
from tests.app.models import Ticket
from tests.races.together import Worker, needs_visible_waits, together

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 8
ROUNDS = 25


def test_racing_moves_away_and_back_leave_no_gap_and_no_broken_link() -> None:
    """
    Eight threads move one row away and back: as many rows as True results, sequences without gaps, one chain.
    """
    ticket = Ticket.objects.create()

    def wander() -> int:
        copy = fresh(ticket)
        moved = 0
        for name in ["publish", "reopen"] * ROUNDS:
            try:
                moved += getattr(copy.process, name)()
            except InvalidTransition:
                continue
        return moved

    outcomes = together([wander] * THREADS)
    chain, numbers = moves(ticket, "process"), sequences(ticket, "process")

    assert [outcome.error for outcome in outcomes] == [None] * THREADS
    assert numbers == list(range(1, len(numbers) + 1))
    assert sum(outcome.value for outcome in outcomes) == len(numbers)
    assert [start for start, _ in chain] == ["new", *[end for _, end in chain[:-1]]]
    assert chain[-1][1] == stored(ticket)


def test_racing_self_transitions_are_all_recorded() -> None:
    """
    A self-transition always runs: N threads touching one row leave N rows, numbered without a gap.
    """
    ticket = Ticket.objects.create()
    copies = [fresh(ticket) for _ in range(THREADS)]

    outcomes = together([copy.process.touch for copy in copies])

    assert [outcome.value for outcome in outcomes] == [True] * THREADS
    assert sequences(ticket, "process") == list(range(1, THREADS + 1))


def test_a_row_that_moved_away_and_back_while_the_statement_waited_is_moved_once_more() -> None:
    """
    The state fits again but the sequence is taken: the unique key catches it and the locked path moves the object.
    """
    needs_visible_waits()
    ticket = Ticket.objects.create()
    first, second = fresh(ticket), fresh(ticket)

    with transaction.atomic():
        first.process.publish()
        first.process.reopen()
        waiting = Worker(lambda: second.process.publish())
        waiting.until_it_waits()
    moved = waiting.result()

    assert moved is True
    assert second.state == stored(ticket) == "published"
    assert moves(ticket, "process") == [("new", "published"), ("published", "new"), ("new", "published")]
    assert sequences(ticket, "process") == [1, 2, 3]


def test_a_stale_copy_is_judged_on_the_row() -> None:
    """
    What a copy remembers decides nothing: a move that the row allows runs, one that it has made is a duplicate.
    """
    ticket = Ticket.objects.create()
    stale, staler = fresh(ticket), fresh(ticket)
    ticket.process.publish()

    archived = stale.process.archive()
    repeated = staler.process.archive()

    assert (archived, repeated) == (True, False)
    assert stale.state == staler.state == "archived"
    assert moves(ticket, "process") == [("new", "published"), ("published", "archived")]


def test_a_stale_copy_can_not_make_a_move_the_row_forbids() -> None:
    """
    A move that only the stale copy's state allows is refused, and the copy learns the truth.
    """
    ticket = Ticket.objects.create()
    stale = fresh(ticket)
    ticket.process.publish()
    ticket.process.archive()

    with pytest.raises(InvalidTransition) as refused:
        stale.process.publish()

    assert refused.value.current_state == stale.state == "archived"
    assert len(moves(ticket, "process")) == 2


def test_versions_let_one_of_many_editors_through() -> None:
    """
    Of N callers that saw the same version one moves; the others are refused as stale.
    """
    ticket = Ticket.objects.create()
    copies = [fresh(ticket) for _ in range(THREADS)]

    outcomes = together([lambda copy=copy: copy.process.touch(expected_version=0) for copy in copies])

    refused = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert [outcome.value for outcome in outcomes].count(True) == 1
    assert all(isinstance(error, TransitionNotAllowed) and error.reason == "stale_version" for error in refused)
    assert len(refused) == THREADS - 1
    assert ticket.process.version == 1


def test_the_statement_locks_no_other_object() -> None:
    """
    A move in an open transaction does not keep another object from moving.
    """
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer for the whole database")
    one, other = Ticket.objects.create(), Ticket.objects.create()

    with transaction.atomic():
        one.process.publish()
        moved = Worker(lambda: fresh(other).process.publish()).result()

    assert moved is True
