"""
Triggers of SQLite, which vanish with every rebuild of a table and come back from the constraint's deferred SQL.

A trigger here can name its constraint only: the text of RAISE is a literal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.ddl_references import Statement

from django_logic.constraints.guard import BIRTH, MOVE, Guard, PlaceName, Text, TriggerStatement

__all__ = ["bodies", "created", "dropped", "exactly", "literal", "spell"]

#: Abort the statement that made the row illegal.
CREATE = """\
CREATE TRIGGER %(trigger)s AFTER %(event)s ON %(table)s FOR EACH ROW WHEN %(illegal)s
BEGIN %(mark)s SELECT RAISE(ABORT, %(message)s); END"""

DROP = "DROP TRIGGER IF EXISTS %(trigger)s"

#: Find the triggers of a table; SQLite keeps their source as it was written.
BODIES = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s COLLATE NOCASE"


def created(guard: Guard) -> list[Statement]:
    """
    Return one statement per trigger.
    """
    old, new = state_in("OLD", guard), state_in("NEW", guard)
    moves = " OR ".join(f"({old} IS {literal(source)} AND {among(new, ends)})" for source, ends in guard.moves)
    statements = [create(guard, MOVE, "UPDATE", f"{old} IS NOT {new} AND NOT ({moves or '0'})", "move")]
    if guard.births is not None:
        statements.append(create(guard, BIRTH, "INSERT", f"NOT ({among(new, guard.births)})", "initial state"))
    return statements


def create(guard: Guard, kind: str, event: str, illegal: str, refused: str) -> Statement:
    """
    Compose the statement for one kind of trigger.
    """
    return TriggerStatement(
        CREATE,
        guard=guard,
        trigger=PlaceName(guard, kind),
        event=event,
        illegal=illegal,
        mark=guard.mark,
        message=literal(f"{guard.name}: the transition table does not list this {refused}"),
    )


def state_in(row: str, guard: Guard) -> str:
    """
    Write a row's state as text that compares byte by byte, whatever the column's type and collation.
    """
    return f"CAST({row}.{guard.quote(guard.column)} AS TEXT) COLLATE BINARY"


def among(state: str, texts: tuple[Text, ...]) -> str:
    """
    Write a condition that is true or false, never unknown.
    """
    return "(" + " OR ".join(f"{state} IS {literal(text)}" for text in texts) + ")"


def dropped(guard: Guard, connection: BaseDatabaseWrapper) -> list[Statement]:
    """
    Return the statements that remove the triggers found on the table.
    """
    found = [name for kind in (MOVE, BIRTH) for name in triggers(guard, kind, connection)]
    return [TriggerStatement(DROP, guard=guard, trigger=guard.quote(name)) for name in found]


def triggers(guard: Guard, kind: str, connection: BaseDatabaseWrapper) -> dict[str, str]:
    """
    Read the triggers of one kind with their sources.
    """
    wanted = PlaceName(guard, kind)
    with connection.cursor() as cursor:
        cursor.execute(BODIES, [guard.table])
        return {name: sql for name, sql in cursor.fetchall() if wanted.matches(name)}


def bodies(guard: Guard, connection: BaseDatabaseWrapper) -> Mapping[str, str]:
    """
    Read the sources of the triggers.
    """
    found = {kind: triggers(guard, kind, connection) for kind in (MOVE, BIRTH)}
    return {kind: next(iter(sources.values())) for kind, sources in found.items() if sources}


def spell(value: Any) -> str:
    """
    Return a value as SQLite casts it to text; its truth is a number.
    """
    return str(int(value)) if isinstance(value, int) else str(value)


def literal(text: Text) -> str:
    """
    Write a text so that a percent sign survives both ways in which a schema editor executes.
    """
    if text is None:
        return "NULL"
    return "'" + text.replace("'", "''").replace("%", "'||char(37)||'") + "'"


def exactly(column: str, text: Text) -> str:
    """
    Compare as the triggers do.
    """
    return f"CAST({column} AS TEXT) COLLATE BINARY IS {literal(text)}"
