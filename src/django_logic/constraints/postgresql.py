"""
Triggers of PostgreSQL. Why they look unusual: ADR-0002.

A legal move costs one expression and no PL/pgSQL: the condition of the trigger asks an SQL function, which the
planner inlines, and only an illegal move reaches the function that raises. Both take the table's row type, so they
follow the table when it is renamed and are dropped with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.ddl_references import Statement

from django_logic.constraints.guard import BIRTH, MOVE, Guard, Text, TriggerStatement, fit

__all__ = ["bodies", "created", "dropped", "exactly", "literal", "spell"]

#: Install one trigger. Its action is never reached: the condition is false, or it raises.
CREATE = """\
CREATE OR REPLACE FUNCTION %(illegal)s(%(rows)s) RETURNS boolean LANGUAGE sql STABLE AS %(condition)s;
CREATE OR REPLACE FUNCTION %(refuse)s(%(rows)s) RETURNS boolean LANGUAGE plpgsql AS %(refusal)s;
GRANT EXECUTE ON FUNCTION %(illegal)s(%(rows)s), %(refuse)s(%(rows)s) TO PUBLIC;
CREATE TRIGGER %(trigger)s AFTER %(event)s ON %(table)s FOR EACH ROW
WHEN (CASE WHEN %(illegal)s(%(values)s) THEN %(refuse)s(%(values)s) ELSE false END)
EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()"""

#: Remove both triggers of a guard and all their functions.
DROP = """\
DROP TRIGGER IF EXISTS %(move)s ON %(table)s;
DROP TRIGGER IF EXISTS %(birth)s ON %(table)s;
DROP FUNCTION IF EXISTS %(illegal)s(%(table)s, %(table)s), %(refuse)s(%(table)s, %(table)s);
DROP FUNCTION IF EXISTS %(illegal)s(%(table)s), %(refuse)s(%(table)s)"""

#: Refuse a move that is not listed. Both states are quoted, so no state can imitate a pair of others, nor NULL.
#: One array, since the text is parsed anew by every statement: a condition per state would cost more.
ILLEGAL_MOVE = """
{mark}
SELECT {old} IS DISTINCT FROM {new} AND quote_nullable({old}) || quote_nullable({new}) <> ALL ({allowed}::text[])
"""

#: Refuse a birth in a state that is not listed.
ILLEGAL_BIRTH = """
{mark}
SELECT quote_nullable({new}) <> ALL ({allowed}::text[])
"""

#: Raise a check violation that names the constraint, the table as it is called now, the key and the states.
#: It reads the row as JSON, since a session's plan for a typed field outlives a change of the column's type.
REFUSE = """
DECLARE
  found jsonb := pg_catalog.to_jsonb({row});
  place text[];
BEGIN
  SELECT ARRAY[n.nspname, c.relname] INTO place
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.reltype = pg_catalog.pg_typeof({row})::oid;
  RAISE EXCEPTION USING
    ERRCODE = 'check_violation',
    MESSAGE = {name} || ': ' || place[2] || ' ' || {key} || {deed} || '.',
    HINT = {hint},
    SCHEMA = place[1], TABLE = place[2], COLUMN = {column}, CONSTRAINT = {name};
END;
"""

MOVE_DEED = "' may not move from ' || {old} || ' to ' || {new}"
BIRTH_DEED = "' may not be created as ' || {new}"
MOVE_HINT = "Move along the transition table of the constraint."
BIRTH_HINT = "Create the row in an initial state of the constraint, then move it."

#: Find the functions behind the triggers of a table that fire for ordinary sessions.
BODIES = """
SELECT t.tgname, string_agg(p.prosrc, ' ')
FROM pg_catalog.pg_trigger t
JOIN pg_catalog.pg_depend d
  ON d.classid = 'pg_catalog.pg_trigger'::regclass AND d.objid = t.oid
  AND d.refclassid = 'pg_catalog.pg_proc'::regclass
JOIN pg_catalog.pg_proc p ON p.oid = d.refobjid
WHERE t.tgrelid = to_regclass(%s) AND t.tgenabled IN ('O', 'A') AND NOT t.tgisinternal
GROUP BY t.tgname
"""


def created(guard: Guard) -> list[Statement]:
    """
    Return one statement per trigger, its functions included.
    """
    moves = [quoted(source) + quoted(end) for source, ends in guard.moves for end in ends]
    statements = [create(guard, MOVE, ILLEGAL_MOVE, "UPDATE", moves)]
    if guard.births is not None:
        births = [quoted(state) for state in guard.births]
        statements.append(create(guard, BIRTH, ILLEGAL_BIRTH, "INSERT", births))
    return statements


def create(guard: Guard, kind: str, condition: str, event: str, allowed: list[str]) -> Statement:
    """
    Compose the statement for one kind of trigger.
    """
    rows = 2 if kind == MOVE else 1
    facts = {"mark": guard.mark, "allowed": array(allowed), "new": state_at(guard, rows)}
    if kind == MOVE:
        facts["old"] = state_at(guard, 1)
    return TriggerStatement(
        CREATE.replace("%(rows)s", ", ".join(["%(table)s"] * rows)),
        guard=guard,
        event=event,
        values="OLD.*, NEW.*" if kind == MOVE else "NEW.*",
        condition=body(condition.format(**facts)),
        refusal=body(refusal(guard, kind)),
        **names(guard, kind),
    )


def refusal(guard: Guard, kind: str) -> str:
    """
    Write the function that raises.
    """
    column = literal(guard.column)
    rows = 2 if kind == MOVE else 1
    states = {"old": said("pg_catalog.to_jsonb($1)", column), "new": said("found", column)}
    keys = [f"coalesce(found ->> {literal(key)}, '?')" for key in guard.keys]
    return REFUSE.format(
        row=f"${rows}",
        name=literal(guard.name),
        key=" || ',' || ".join(keys),
        deed=(MOVE_DEED if kind == MOVE else BIRTH_DEED).format(**states),
        hint=literal(MOVE_HINT if kind == MOVE else BIRTH_HINT),
        column=column,
    )


def said(row: str, column: str) -> str:
    """
    Quote a row's state for a message.
    """
    return f"quote_nullable({row} ->> {column})"


def state_at(guard: Guard, position: int) -> str:
    """
    Write the state of a parameter as text that compares byte by byte, whatever the column's type and collation.
    """
    return f'((${position}).{guard.quote(guard.column)}::text COLLATE "C")'


def quoted(text: Text) -> str:
    """
    Return a text as the server's own quote_nullable() does.
    """
    if text is None:
        return "NULL"
    prefix = "E" if "\\" in text else ""
    return prefix + "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def array(elements: list[str]) -> str:
    """
    Write an array of texts.
    """
    escaped = (element.replace("\\", "\\\\").replace('"', '\\"') for element in elements)
    return literal("{" + ",".join(f'"{element}"' for element in escaped) + "}")


def body(source: str) -> str:
    """
    Quote a function's body by dollars, with a tag that the body does not contain.
    """
    tag = "$dl$"
    while tag in source:
        tag = f"{tag[:-1]}_$"
    return f"{tag}{source}{tag}"


def names(guard: Guard, kind: str) -> dict[str, str]:
    """
    Return the names of one trigger and its functions; the row type in their signature makes them the table's own.
    """
    return {
        "trigger": guard.quote(fit(f"{guard.name}_{kind}")),
        "illegal": guard.quote(fit(f"{guard.name}_is_illegal")),
        "refuse": guard.quote(fit(f"{guard.name}_refuse")),
    }


def dropped(guard: Guard, _connection: BaseDatabaseWrapper) -> list[Statement]:
    """
    Return the one statement that removes both triggers and their functions.
    """
    triggers = {kind: names(guard, kind).pop("trigger") for kind in (MOVE, BIRTH)}
    functions = {name: text for name, text in names(guard, MOVE).items() if name != "trigger"}
    return [TriggerStatement(DROP, guard=guard, **triggers, **functions)]


def bodies(guard: Guard, connection: BaseDatabaseWrapper) -> Mapping[str, str]:
    """
    Read the sources of the functions behind the enabled triggers.
    """
    with connection.cursor() as cursor:
        cursor.execute(BODIES, [guard.quote(guard.table)])
        found = dict(cursor.fetchall())
    wanted = {kind: fit(f"{guard.name}_{kind}") for kind in (MOVE, BIRTH)}
    return {kind: found[name] for kind, name in wanted.items() if name in found}


def spell(value: Any) -> str:
    """
    Return a value as PostgreSQL casts it to text.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, int) else str(value)


def literal(text: Text) -> str:
    """
    Write a text in ASCII, escaped so that neither a percent sign nor standard_conforming_strings can change it.
    """
    if text is None:
        return "NULL"
    if all(is_plain(character) for character in text):
        return f"'{text}'"
    return "E'" + "".join(character if is_plain(character) else escaped(character) for character in text) + "'"


def is_plain(character: str) -> bool:
    """
    Tell whether a character means itself inside quotes, dollar quotes and a statement with parameters.
    """
    return " " <= character <= "~" and character not in "'\\%$"


def escaped(character: str) -> str:
    """
    Write a character by its number.
    """
    number = ord(character)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def exactly(column: str, text: Text) -> str:
    """
    Compare as the triggers do.
    """
    if text is None:
        return f"{column} IS NULL"
    return f'{column}::text COLLATE "C" = {literal(text)}'
