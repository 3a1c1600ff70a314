"""
Triggers of MySQL and MariaDB.

Their names are unique per database and outlive a renamed table, so they are looked up by the table they are on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.ddl_references import Statement, Table

from django_logic.constraints.guard import BIRTH, MOVE, Guard, PlaceName, Text, TriggerStatement

__all__ = ["bodies", "created", "dropped", "exactly", "literal", "spell"]

#: Fail the statement that made the row illegal. The number is one that Django turns into IntegrityError,
#: the check violation of MariaDB; a message has 128 characters at most.
CREATE = """\
CREATE TRIGGER %(trigger)s AFTER %(event)s ON %(table)s FOR EACH ROW
BEGIN %(mark)s
DECLARE message TEXT CHARACTER SET utf8mb4;
IF %(illegal)s THEN
SET message = LEFT(CONCAT(%(name)s, ': ', %(place)s, ' ', %(deed)s), 128);
SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = message;
END IF;
END"""

DROP = "DROP TRIGGER IF EXISTS %(trigger)s"

#: Find the triggers of a table with their sources.
BODIES = """
SELECT trigger_name, action_statement FROM information_schema.triggers
WHERE event_object_schema = DATABASE() AND event_object_table = %s
"""


class TableText(Table):
    """
    Stand for the table's name as a literal, kept up when the statement's table is renamed before it runs.
    """

    def __str__(self) -> str:
        return literal(self.table)


def created(guard: Guard) -> list[Statement]:
    """
    Return one statement per trigger.
    """
    old, new = state_in("OLD", guard), state_in("NEW", guard)
    moves = " OR ".join(f"({old} <=> {literal(source)} AND {among(new, ends)})" for source, ends in guard.moves)
    deed = ["' may not move from '", said("OLD", guard), "' to '", said("NEW", guard), "'.'"]
    statements = [create(guard, MOVE, "UPDATE", f"NOT ({old} <=> {new}) AND NOT ({moves or 'FALSE'})", deed)]
    if guard.births is not None:
        deed = ["' may not be created as '", said("NEW", guard), "'.'"]
        statements.append(create(guard, BIRTH, "INSERT", f"NOT {among(new, guard.births)}", deed))
    return statements


def create(guard: Guard, kind: str, event: str, illegal: str, deed: list[str]) -> Statement:
    """
    Compose the statement for one kind of trigger.
    """
    keys = [f"CONVERT(NEW.{guard.quote(key)} USING utf8mb4)" for key in guard.keys]
    return TriggerStatement(
        CREATE,
        guard=guard,
        trigger=PlaceName(guard, kind),
        event=event,
        illegal=illegal,
        mark=guard.mark,
        name=literal(guard.name),
        place=TableText(guard.table, guard.quote),
        deed=", ".join([", ',', ".join(keys), *deed]),
    )


def state_in(row: str, guard: Guard) -> str:
    """
    Write a row's state as bytes: a collation would take 'Draft' and 'draft ' for 'draft'.
    """
    return as_bytes(f"{row}.{guard.quote(guard.column)}")


def as_bytes(column: str) -> str:
    """
    Write a column as the bytes of its text.
    """
    return f"CAST(CONVERT({column} USING utf8mb4) AS BINARY)"


def said(row: str, guard: Guard) -> str:
    """
    Quote a row's state for a message.
    """
    return f"QUOTE(CONVERT({row}.{guard.quote(guard.column)} USING utf8mb4))"


def among(state: str, texts: tuple[Text, ...]) -> str:
    """
    Write a condition that is true or false, never unknown.
    """
    return "(" + " OR ".join(f"{state} <=> {literal(text)}" for text in texts) + ")"


def dropped(guard: Guard, connection: BaseDatabaseWrapper) -> list[Statement]:
    """
    Return the statements that remove the triggers, under the names they have and those they would get.
    """
    names = []
    for kind in (MOVE, BIRTH):
        names += [guard.quote(name) for name in triggers(guard, kind, connection)]
        names.append(str(PlaceName(guard, kind)))
    return [TriggerStatement(DROP, guard=guard, trigger=name) for name in dict.fromkeys(names)]


def triggers(guard: Guard, kind: str, connection: BaseDatabaseWrapper) -> dict[str, str]:
    """
    Read the triggers of one kind with their sources.
    """
    wanted = PlaceName(guard, kind)
    with connection.cursor() as cursor:
        cursor.execute(BODIES, [guard.table])
        return {name: source for name, source in cursor.fetchall() if wanted.matches(name)}


def bodies(guard: Guard, connection: BaseDatabaseWrapper) -> Mapping[str, str]:
    """
    Read the sources of the triggers.
    """
    found = {kind: triggers(guard, kind, connection) for kind in (MOVE, BIRTH)}
    return {kind: next(iter(sources.values())) for kind, sources in found.items() if sources}


def spell(value: Any) -> str:
    """
    Return a value as the server converts it to text; its truth is a number.
    """
    return str(int(value)) if isinstance(value, int) else str(value)


def literal(text: Text) -> str:
    """
    Write a text as itself where that is safe, else by its bytes: no SQL mode and no percent sign can change it.
    """
    if text is None:
        return "NULL"
    if all(" " <= character <= "~" and character not in "'\\%" for character in text):
        return f"'{text}'"
    return f"CONVERT(X'{text.encode().hex()}' USING utf8mb4)"


def exactly(column: str, text: Text) -> str:
    """
    Compare as the triggers do.
    """
    return f"{as_bytes(column)} <=> {literal(text)}"
