"""
Test what only PostgreSQL promises: schemas, roles, diagnostics, and sessions that outlive a change of type.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from django.db import (
    DatabaseError,
    IntegrityError,
    NotSupportedError,
    connection,
    connections,
    migrations,
    models,
    transaction,
)

from django_logic.constraints import TransitionConstraint, is_installed
from tests.constraints_app.models import Odd, Order, Status
from tests.migrations.timeline import Timeline, create_order, timeline

pytestmark = pytest.mark.usefixtures("only_postgres")

BLURRED = "CREATE COLLATION blurred (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
MOVES = TransitionConstraint(field="status", table={"draft": ["placed"], "placed": ["paid"]}, name="order_moves")


@pytest.fixture
def line(transactional_db: None, only_postgres: None) -> Iterator[Timeline]:
    """
    Give a timeline on the default database.
    """
    with timeline() as line:
        yield line


@pytest.fixture
def session(line: Timeline) -> Iterator[Any]:
    """
    Give a second connection, as another process holds it.
    """
    other = connections.create_connection("default")
    yield other
    other.close()


def run(session: Any, sql: str, *parameters: Any) -> Any:
    """
    Execute SQL in a session.
    """
    with session.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []


@pytest.mark.django_db
def test_violation_carries_its_facts_for_programs() -> None:
    """
    SQLSTATE, constraint, schema, table and column are fields of the error, and a hint says what to do.
    """
    Order.objects.create()

    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        Order.objects.update(status=Status.PAID)

    cause: Any = caught.value.__cause__
    facts = cause.diag
    assert facts.sqlstate == "23514"
    assert facts.constraint_name == "constraints_order_moves"
    assert (facts.schema_name, facts.table_name, facts.column_name) == ("public", "constraints_app_order", "status")
    assert facts.message_hint == "Move along the transition table of the constraint."


def test_message_names_the_table_as_it_is_called_now(line: Timeline) -> None:
    """
    After a rename, the refusal does not speak of a table that is gone.
    """
    line.forward(create_order(MOVES))
    line.forward(migrations.AlterModelTable("Order", "yard_purchases"))
    line.rows().create()

    with pytest.raises(IntegrityError, match="order_moves: yard_purchases 1 may not move"), transaction.atomic():
        line.rows().update(status="paid")


def test_session_that_moved_rows_before_a_change_of_type_goes_on(line: Timeline, session: Any) -> None:
    """
    A worker whose session is older than the migration moves rows, and is refused, as before.
    """
    line.forward(create_order(MOVES))
    line.rows().create()
    run(session, "UPDATE yard_order SET status = 'placed'")
    with pytest.raises(IntegrityError):
        run(session, "UPDATE yard_order SET status = 'draft'")

    line.forward(migrations.AlterField("Order", "status", models.TextField(default="draft")))
    with pytest.raises(IntegrityError, match="may not move from 'placed' to 'draft'"):
        run(session, "UPDATE yard_order SET status = 'draft'")
    run(session, "UPDATE yard_order SET status = 'paid'")

    assert run(session, "SELECT status FROM yard_order") == [("paid",)]


def test_row_with_a_large_value_is_not_read_for_a_legal_move(line: Timeline) -> None:
    """
    The condition asks for two columns, not for the row: its plan holds no whole row to fetch.
    """
    line.forward(create_order(MOVES, fields={"text": models.TextField(default="")}))
    line.rows().create(text="x" * 5_000_000)

    plan = "\n".join(row[0] for row in run(connection, "EXPLAIN ANALYZE UPDATE yard_order SET status = 'placed'"))
    line.rows().update(status="paid")

    assert "Update on yard_order" in plan
    assert line.rows().get().status == "paid"


def test_generated_column_beside_the_state_is_fine(line: Timeline) -> None:
    """
    A table with a column the database computes is guarded, and may get one later.
    """
    line.forward(create_order(MOVES))
    line.run("ALTER TABLE yard_order ADD COLUMN loud text GENERATED ALWAYS AS (upper(status)) STORED")
    line.forward(migrations.RemoveConstraint("Order", "order_moves"))
    line.forward(migrations.AddConstraint("Order", MOVES))
    line.rows().create()

    with pytest.raises(IntegrityError), transaction.atomic():
        line.rows().update(status="paid")

    line.rows().update(status="placed")


def test_same_table_in_two_schemas_has_two_guards(line: Timeline, session: Any) -> None:
    """
    A schema per tenant works: functions and triggers live beside their table, and go with it.
    """
    run(session, "CREATE SCHEMA tenant")
    run(session, "SET search_path TO tenant, public")
    there = Timeline()
    line.forward(create_order(MOVES))
    try:
        run(connection, "SET search_path TO tenant, public")
        there.forward(create_order(MOVES))
        there.rows().create()
        run(connection, "SET search_path TO public")
        line.rows().create()

        for place in (connection, session):
            with pytest.raises(IntegrityError, match="order_moves"), transaction.atomic():
                run(place, "UPDATE yard_order SET status = 'paid'")
        schemas = run(session, "SELECT count(*) FROM pg_proc WHERE pronamespace = 'tenant'::regnamespace")
        line.forward(migrations.RemoveConstraint("Order", "order_moves"))
        run(connection, "UPDATE yard_order SET status = 'paid'")
        with pytest.raises(IntegrityError):
            run(session, "UPDATE yard_order SET status = 'paid'")

        assert schemas == [(2,)]
    finally:
        run(connection, "SET search_path TO public")
        run(session, "DROP SCHEMA tenant CASCADE")


def test_role_without_rights_on_functions_is_guarded_and_not_hindered(line: Timeline) -> None:
    """
    Where functions are not executable by default, another service's role still moves rows along the table.
    """
    run(connection, "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
    run(connection, "CREATE ROLE clerk")
    try:
        line.forward(create_order(MOVES))
        line.rows().create()
        run(connection, "GRANT SELECT, UPDATE ON yard_order TO clerk")
        with transaction.atomic():
            run(connection, "SET LOCAL ROLE clerk")
            run(connection, "UPDATE yard_order SET status = 'placed'")
        run(connection, "SET ROLE clerk")
        with pytest.raises(IntegrityError, match="may not move"), transaction.atomic():
            run(connection, "UPDATE yard_order SET status = 'draft'")
    finally:
        run(connection, "RESET ROLE")
        run(connection, "ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO PUBLIC")
        run(connection, "DROP OWNED BY clerk")
        run(connection, "DROP ROLE clerk")


def test_disabled_trigger_counts_as_not_installed(line: Timeline) -> None:
    """
    is_installed() is about what the database refuses, not about what it has stored.
    """
    line.forward(create_order(MOVES))
    before = is_installed(connection, line.model(), MOVES)
    run(connection, "ALTER TABLE yard_order DISABLE TRIGGER USER")

    assert (before, is_installed(connection, line.model(), MOVES)) == (True, False)


def test_table_is_dropped_by_hand_only_with_its_functions(line: Timeline) -> None:
    """
    DROP TABLE without CASCADE names the functions that would be left, with CASCADE it takes them along.
    """
    line.forward(create_order(MOVES))

    with pytest.raises(DatabaseError, match="order_moves_is_illegal"), transaction.atomic():
        run(connection, "DROP TABLE yard_order")
    run(connection, "DROP TABLE yard_order CASCADE")

    assert line.traces() == []


@pytest.mark.parametrize("setting", ["on", "off"])
def test_odd_texts_mean_the_same_whatever_a_session_thinks_of_backslashes(line: Timeline, setting: str) -> None:
    """
    A session with other rules for string literals is held to the same table.
    """
    path = ["a", "back\\slash", "it's", "\\' OR true --", "100%", "$dl$", "ž"]
    table = {state: [end] for state, end in pairwise(path)}
    constraint = TransitionConstraint(field="status", table=table, name="odd", initial="a")
    run(connection, f"SET standard_conforming_strings TO {setting}")
    run(connection, "SET escape_string_warning TO off")
    try:
        line.forward(create_order(constraint))
        line.rows().create(status="a")
        for state in path[1:]:
            with pytest.raises(IntegrityError), transaction.atomic():
                line.rows().update(status=state + "x")
            run(connection, "UPDATE yard_order SET status = convert_from(%s, 'UTF8')", state.encode())
        assert line.rows().get().status == path[-1]
    finally:
        run(connection, "RESET standard_conforming_strings")
        run(connection, "RESET escape_string_warning")


def test_collation_that_ignores_case_does_not_blur_the_states(line: Timeline) -> None:
    """
    On a column that takes 'Draft' for 'draft', the two are still two states.
    """
    try:
        run(connection, BLURRED)
    except NotSupportedError as error:
        pytest.skip(str(error))
    try:
        line.forward(create_order(MOVES))
        run(connection, "ALTER TABLE yard_order ALTER COLUMN status TYPE varchar(20) COLLATE blurred")
        line.rows().create()
        for state in ("Draft", "PLACED"):
            with pytest.raises(IntegrityError), transaction.atomic():
                line.rows().update(status=state)
        line.rows().update(status="placed")
    finally:
        run(connection, 'ALTER TABLE yard_order ALTER COLUMN status TYPE varchar(20) COLLATE "default"')
        run(connection, "DROP COLLATION blurred")


@pytest.mark.django_db
def test_copy_is_held_to_the_initial_states() -> None:
    """
    COPY creates rows like any other statement.
    """
    with connection.cursor() as cursor, pytest.raises(Exception, match="may not be created as 'nowhere'"):
        load(cursor, "nowhere\n")

    assert not Odd.objects.exists()


def load(cursor: Any, rows: str) -> None:
    """
    Stream rows into a table.
    """
    with transaction.atomic(), cursor.copy("COPY constraints_app_odd (state) FROM STDIN") as copy:
        copy.write(rows)
