"""
Test what only MySQL and MariaDB make hard: SQL modes, character sets, statements that ignore errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from django.db import IntegrityError, connection, migrations, models, transaction

from django_logic.constraints import TransitionConstraint, is_installed, suspended
from tests.constraints_app.models import ODD_STATES, Order, Status
from tests.migrations.timeline import Timeline, create_order, timeline

PATH = [state for state in ODD_STATES if state.isascii()]
MOVES = TransitionConstraint(
    field="status", table={state: [end] for state, end in pairwise(PATH)}, name="odd_moves", initial=PATH
)


@pytest.fixture
def line(transactional_db: None) -> Iterator[Timeline]:
    """
    Give a timeline on MySQL.
    """
    if connection.vendor != "mysql":
        pytest.skip("the promise is made for MySQL and MariaDB")
    with timeline() as line:
        yield line


@pytest.fixture(params=["", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES"])
def mode(line: Timeline, request: pytest.FixtureRequest) -> Iterator[str]:
    """
    Set the SQL mode of the session for one test.
    """
    line.run(f"SET SESSION sql_mode = CONCAT('STRICT_TRANS_TABLES,', '{request.param}')")
    yield request.param
    connection.close()


def write(line: Timeline, state: str) -> None:
    """
    Write a state by its bytes, since the driver's own escaping does not know the mode.
    """
    line.run(f"UPDATE yard_order SET status = CONVERT(X'{state.encode().hex()}' USING utf8mb4)")


def walk(line: Timeline) -> None:
    """
    Walk the whole path, trying every other state on the way.
    """
    line.run("INSERT INTO yard_order (status) VALUES ('')")
    for state, end in pairwise(PATH):
        for other in PATH:
            if other not in (state, end):
                with pytest.raises(IntegrityError), transaction.atomic():
                    write(line, other)
        write(line, state)
        write(line, end)


def test_odd_texts_mean_the_same_in_every_mode_of_the_creator(line: Timeline, mode: str) -> None:
    """
    A trigger created under one mode holds under the usual one.
    """
    line.forward(create_order(MOVES))
    line.run("SET SESSION sql_mode = 'STRICT_TRANS_TABLES'")

    walk(line)

    assert line.rows().get().status == PATH[-1]


def test_odd_texts_mean_the_same_in_every_mode_of_the_writer(line: Timeline, mode: str) -> None:
    """
    A trigger created under the usual mode holds for a session with another.
    """
    line.run("SET SESSION sql_mode = 'STRICT_TRANS_TABLES'")
    line.forward(create_order(MOVES))
    line.run(f"SET SESSION sql_mode = CONCAT('STRICT_TRANS_TABLES,', '{mode}')")

    walk(line)

    assert line.rows().get().status == PATH[-1]


@pytest.mark.parametrize("charset", ["latin1", "utf8mb4", "ucs2"])
def test_character_set_of_the_column_does_not_matter(line: Timeline, charset: str) -> None:
    """
    A table in an old character set is held to the same states.
    """
    table = {"é": ["ü"], "ü": ["e"], "e": []}
    line.forward(create_order(TransitionConstraint(field="status", table=table, name="accents", initial="é")))
    line.run(f"ALTER TABLE yard_order CONVERT TO CHARACTER SET {charset}")
    line.rows().create(status="é")

    with pytest.raises(IntegrityError, match="from 'é' to 'e'"), transaction.atomic():
        line.rows().update(status="e")
    with pytest.raises(IntegrityError), transaction.atomic():
        line.rows().create(status="e")
    line.rows().update(status="ü")

    assert line.rows().get().status == "ü"


def test_update_that_ignores_errors_is_refused(line: Timeline) -> None:
    """
    UPDATE IGNORE does not turn a refusal into a warning.
    """
    line.forward(create_order(TransitionConstraint(field="status", table={"draft": ["placed"]}, name="moves")))
    line.rows().create()

    with pytest.raises(IntegrityError), transaction.atomic():
        line.run("UPDATE IGNORE yard_order SET status = 'paid'")

    assert line.rows().get().status == "draft"


def test_message_that_is_too_long_is_cut(line: Timeline) -> None:
    """
    A message has 128 characters at most, and the states come last.
    """
    long = models.CharField(max_length=2000, default="draft")
    line.forward(
        create_order(
            TransitionConstraint(field="status", table={"draft": ["placed"]}, name="moves"), fields={"status": long}
        )
    )
    line.rows().create()

    with (
        pytest.raises(IntegrityError, match="moves: yard_order 1 may not move from 'draft' to 'žž"),
        transaction.atomic(),
    ):
        line.rows().update(status="ž" * 2000)


def test_triggers_named_after_an_earlier_table_are_not_taken_for_another(line: Timeline) -> None:
    """
    Removing the constraint of one table does not touch a constraint whose name merely starts alike.
    """
    table = {"draft": ["placed"]}
    first = TransitionConstraint(field="status", table=table, name="a")
    second = TransitionConstraint(field="status", table=table, name="a_move")
    line.forward(create_order(first, second))

    line.forward(migrations.RemoveConstraint("Order", "a"))

    assert is_installed(connection, line.model(), second)
    assert len(line.traces()) == 1


def create_and_fail() -> None:
    """
    Write a row, then fail.
    """
    Order.objects.create(status=Status.PAID)
    raise ZeroDivisionError


def test_block_that_fails_while_suspended_is_guarded_again(line: Timeline) -> None:
    """
    Where nothing is rolled back, the triggers come back all the same.
    """
    with pytest.raises(ZeroDivisionError), suspended(Order):
        create_and_fail()

    assert is_installed(connection, Order, Order._meta.constraints[1])
    assert Order.objects.exists()
