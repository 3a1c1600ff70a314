"""
Fill the table of background work as years of use do, and look at how statements find their way through it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django.db import connection, transaction
from django.utils import timezone

from django_logic.background.models import TransitionMessage

TABLE = TransitionMessage._meta.db_table

#: What the copies of a row do not share with it.
OWN = {
    "instance_id": "%(name)s || '-' || number / %(rows_of_one)s",
    "run_at": "STATEMENT_TIMESTAMP() + %(due)s * INTERVAL '1 second' + number * INTERVAL '1 ms'",
    "transition_id": "GEN_RANDOM_UUID()",
}


def fill(count: int, *, name: str, due: float = -600.0, rows_of_one: int = 1, **values: Any) -> None:
    """
    Insert so many rows that come due from a moment on, in seconds from now, one a millisecond.

    ``name`` begins their objects' keys; ``rows_of_one`` of them are about the same object.
    """
    about = {"app_label": "worker_app", "model_name": "job", "process_name": "process", "model_class": "worker_app.Job"}
    known: dict[str, Any] = {**about, "transition_name": "quick", "queue_name": "work", **values}
    now = timezone.now()
    if "outcome" in known:
        known |= {"is_completed": True, "completed_at": now}
    unique = {"created": now, "modified": now, "run_at": now, "transition_id": uuid4(), "root_id": uuid4()}
    first = TransitionMessage.objects.create(instance_id=f"{name}-first", **unique, **known)
    columns = [str(field.column) for field in TransitionMessage._meta.concrete_fields if not field.primary_key]
    chosen = [OWN.get(column, f'first."{column}"') for column in columns]
    copy = (
        f"INSERT INTO {TABLE} ({', '.join(columns)}) SELECT {', '.join(chosen)}"
        f" FROM {TABLE} first, GENERATE_SERIES(1, %(count)s) number WHERE first.id = %(id)s"
    )
    parameters: dict[str, Any] = {"name": name, "rows_of_one": rows_of_one, "due": due, "count": count, "id": first.pk}
    with connection.cursor() as cursor:
        cursor.execute(copy, parameters)
    first.delete()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    Hold what a statement touched: pages of tables and indexes, which indexes, and whether it read a whole table.
    """

    pages: int
    indexes: frozenset[str]
    scans: frozenset[str]


def plans_of(call: Callable[[], Any]) -> list[Plan]:
    """
    Run a function, undo what it did, and explain every statement on the table of background work that it sent.
    """
    sent: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        # A caller may go on to change what it has sent.
        sent.append((sql, deepcopy(parameters)))
        return execute(sql, parameters, many, context)

    with undone(), connection.execute_wrapper(note):
        call()
    return [explain(sql, parameters) for sql, parameters in sent if TABLE in sql]


@contextmanager
def undone() -> Iterator[None]:
    """
    Take back what the block does.
    """
    with transaction.atomic():
        place = transaction.savepoint()
        yield
        transaction.savepoint_rollback(place)


def explain(sql: str, parameters: Sequence[Any] | None) -> Plan:
    """
    Run a statement once more, undo it, and return its plan.
    """
    with undone(), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", parameters)
        (answer,) = cursor.fetchone()
    root = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
    nodes = list(nodes_of(root))
    return Plan(
        pages=root["Shared Hit Blocks"] + root["Shared Read Blocks"],
        indexes=frozenset(node["Index Name"] for node in nodes if "Index Name" in node),
        scans=frozenset(node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"),
    )


def nodes_of(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """
    Go through a plan.
    """
    yield node
    for below in node.get("Plans", ()):
        yield from nodes_of(below)
