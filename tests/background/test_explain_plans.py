"""
Prove that looking at open rows costs what the open rows cost, however many have ended.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_logic.background.explain import Code, explain, rows_with, tally
from django_logic.background.metrics import snapshot
from django_logic.background.models import TransitionMessage
from tests.background.flows import Flow, new_ticket, work
from tests.background.onlookers import TABLE, enter_worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]

ENDED = 20_000
#: Copies of a row that ended long ago; what tells rows apart is counted on.
FILL = """
INSERT INTO {table} ({columns}, instance_id, is_completed, completed_at, outcome)
SELECT {columns}, 'old ' || number, true, STATEMENT_TIMESTAMP(), 'succeeded'
FROM {table}, GENERATE_SERIES(1, %s) number
"""


@pytest.fixture
def many_ended(flow: Flow) -> None:
    """
    Leave a few open rows among many that have ended.
    """
    flow(work(queue="q"))
    enter_worker("q")
    new_ticket().flow.go()
    own = {"id", "instance_id", "is_completed", "completed_at", "outcome"}
    columns = ", ".join(field.column for field in TransitionMessage._meta.concrete_fields if field.column not in own)
    with connection.cursor() as cursor:
        cursor.execute(FILL.format(table=TABLE, columns=columns), [ENDED])
        cursor.execute(f"VACUUM ANALYZE {TABLE}")
    for _ in range(4):
        new_ticket().flow.go()


def read_rows(statement: str) -> float:
    """
    Return how many rows of the table a statement reads, those it throws away included.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        ((plan,),) = cursor.fetchall()

    def visit(node: dict[str, Any]) -> float:
        read = 0.0
        if node.get("Relation Name") == TABLE:
            thrown = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            read = (node["Actual Rows"] + thrown) * node["Actual Loops"]
        return read + sum(visit(inner) for inner in node.get("Plans", []))

    return visit(plan[0]["Plan"])


@pytest.mark.parametrize(
    "look",
    [
        tally,
        lambda: explain(["q"]),
        lambda: explain(pks=[1]),
        lambda: list(rows_with(Code.WAITING_BEHIND)),
        lambda: snapshot(with_ended=False),
    ],
)
def test_looks_read_no_row_that_has_ended(many_ended: None, look: Any) -> None:
    """
    Counting, explaining, listing and measuring open rows reads the open rows alone.
    """
    with CaptureQueriesContext(connection) as queries:
        look()

    read = {query["sql"]: read_rows(query["sql"]) for query in queries if TABLE in query["sql"]}
    assert read
    assert {sql: rows for sql, rows in read.items() if rows > 100} == {}
