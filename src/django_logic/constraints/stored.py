"""
Renaming a state where it is stored: in the rows of its model and in the records of their moves.

The triggers have to be off; the migration operation sees to that.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db import router

from django_logic.constraints.edges import State
from django_logic.constraints.guard import local_field, spelled
from django_logic.constraints.triggers import dialect_of
from django_logic.states import as_text

__all__ = ["rename_records", "rename_rows", "settle"]

#: Call a state otherwise wherever it is stored.
RENAME_ROWS = "UPDATE {table} SET {column} = {new} WHERE {is_old}"

#: The same in a record of moves, for one column of one model.
RENAME_RECORDS = """\
UPDATE {table} SET {column} = {new}
WHERE {app_label} AND {model_name} AND {field_name} AND {is_old}"""

#: Check what was deferred and defer again: PostgreSQL alters no table that has checks pending.
SETTLE = "SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED"

RECORDS = ("StatusChange", "AuditEntry")
STATES_OF_RECORD = ("from_state", "to_state")


def rename_rows(owner: str, model: Any, field_name: str, names: tuple[State, State], editor: Any) -> None:
    """
    Rename a state in the rows of its own table.
    """
    dialect = dialect_of(editor.connection)
    field = local_field(owner, model, field_name)
    old, new = (spelled(owner, field, state, editor.connection, dialect) for state in names)
    column = editor.quote_name(field.column)
    sql = RENAME_ROWS.format(
        table=editor.quote_name(model._meta.db_table),
        column=column,
        new=dialect.literal(new),
        is_old=dialect.exactly(column, old),
    )
    editor.execute(sql, params=None)


def settle(editor: Any) -> None:
    """
    Run the checks that wait for the end of the transaction, so that its tables can be altered.
    """
    if editor.connection.vendor == "postgresql":
        editor.execute(SETTLE, params=None)


def rename_records(model: Any, field_name: str, names: tuple[State, State], editor: Any) -> None:
    """
    Rename a state in history and audit, where those are installed and their tables exist.
    """
    dialect = dialect_of(editor.connection)
    old, new = (as_text(state) for state in names)
    about = {"app_label": model._meta.app_label, "model_name": model._meta.model_name, "field_name": field_name}
    for record in installed_records(editor.connection):
        columns = {entry.name: editor.quote_name(entry.column) for entry in record._meta.concrete_fields}
        for name in STATES_OF_RECORD:
            sql = RENAME_RECORDS.format(
                table=editor.quote_name(record._meta.db_table),
                column=columns[name],
                new=dialect.literal(new),
                is_old=dialect.exactly(columns[name], old),
                **{key: f"{columns[key]} = {dialect.literal(value)}" for key, value in about.items()},
            )
            editor.execute(sql, params=None)


def installed_records(connection: Any) -> list[Any]:
    """
    Return the record models whose tables this database has.
    """
    if not apps.is_installed("django_logic"):
        return []
    models = [apps.get_model("django_logic", name) for name in RECORDS]
    tables = set(connection.introspection.table_names())
    return [
        model
        for model in models
        if model._meta.db_table in tables and router.allow_migrate_model(connection.alias, model)
    ]
