"""
Putting a constraint's triggers into a database, taking them out, and telling whether they are there.

The SQL itself is in the module of each vendor. A database without one is refused, since a guard that is
declared and silently absent would be worse than none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from django.db import DEFAULT_DB_ALIAS, NotSupportedError, connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement

from django_logic.constraints import mysql, postgresql, sqlite
from django_logic.constraints.guard import Declared, Dialect, Guard, TriggerStatement, guard_of

if TYPE_CHECKING:
    from django_logic.constraints.transition import TransitionConstraint

__all__ = ["create", "dialect_of", "drop", "forget", "guard_for", "is_installed", "is_supported", "suspended"]

#: The vendors with triggers of ours; MariaDB goes by the name of MySQL.
DIALECTS = MappingProxyType({"mysql": mysql, "postgresql": postgresql, "sqlite": sqlite})


def is_supported(connection: BaseDatabaseWrapper) -> bool:
    """
    Tell whether the database can enforce moves.
    """
    return connection.vendor in DIALECTS


def dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    """
    Return the module that speaks to a database.

    Raises: NotSupportedError where there is none.
    """
    if not is_supported(connection):
        raise NotSupportedError(
            f"A TransitionConstraint needs PostgreSQL, SQLite, MySQL or MariaDB; found {connection.display_name}."
            " Keep the model off this database with a router or Meta.required_db_vendor."
        )
    return cast("Dialect", DIALECTS[connection.vendor])


def guard_for(constraint: Declared, model: type[models.Model], connection: BaseDatabaseWrapper) -> Guard:
    """
    Spell a constraint for one table of one database.
    """
    return guard_of(constraint, model, connection, dialect_of(connection))


def create(constraint: Declared, model: type[models.Model], connection: BaseDatabaseWrapper) -> list[Statement]:
    """
    Return the statements that install a constraint, each to be executed alone and without parameters.
    """
    return dialect_of(connection).created(guard_for(constraint, model, connection))


def drop(constraint: Declared, model: type[models.Model], connection: BaseDatabaseWrapper) -> list[Statement]:
    """
    Return the statements that remove a constraint, whatever it allowed when it was installed.
    """
    return dialect_of(connection).dropped(guard_for(constraint, model, connection), connection)


def forget(constraint: Declared, model: type[models.Model], editor: BaseDatabaseSchemaEditor) -> None:
    """
    Take back the triggers that a schema editor still means to create when it closes.
    """
    editor.deferred_sql = [
        statement
        for statement in editor.deferred_sql
        if not (
            isinstance(statement, TriggerStatement)
            and statement.constraint == constraint.name
            and statement.references_table(model._meta.db_table)
        )
    ]


def is_installed(connection: BaseDatabaseWrapper, model: type[models.Model], constraint: TransitionConstraint) -> bool:
    """
    Tell whether the database enforces a constraint in its present version: every trigger, enabled, on this column.
    """
    guard = guard_for(constraint, model, connection)
    bodies = dialect_of(connection).bodies(guard, connection)
    column = guard.quote(guard.column)
    return set(bodies) == set(guard.kinds) and all(guard.mark in body and column in body for body in bodies.values())


@contextmanager
def suspended(*owners: type[models.Model], using: str = DEFAULT_DB_ALIAS) -> Iterator[None]:
    """
    Take the moves of models off the database for a block, for a load of rows that are past their birth.

    Transaction: PostgreSQL and SQLite run the block in one, with the tables locked; MySQL guards nobody meanwhile.
    Raises: TransactionManagementError inside a transaction on MySQL, which would end it.
    """
    connection = connections[using]
    lifted = [statement for entry, model in declared(owners) for statement in drop(entry, model, connection)]
    laid = [statement for entry, model in declared(owners) for statement in create(entry, model, connection)]
    if connection.features.can_rollback_ddl:
        with transaction.atomic(using=using):
            execute(connection, lifted)
            yield
            execute(connection, laid)
        return
    if connection.in_atomic_block:
        raise transaction.TransactionManagementError(
            f"suspended(): {connection.display_name} ends a transaction when a trigger changes."
            " Leave the atomic block first."
        )
    try:
        execute(connection, lifted)
        yield
    finally:
        execute(connection, laid)


def declared(owners: Iterable[type[models.Model]]) -> Iterator[tuple[Any, type[models.Model]]]:
    """
    Go through the transition constraints of models, each with the model that has the table.
    """
    for owner in owners:
        model: Any = owner._meta.concrete_model
        # Asked by what it declares, since the class would make the modules import each other.
        yield from ((entry, model) for entry in model._meta.constraints if hasattr(entry, "edges"))


def execute(connection: BaseDatabaseWrapper, statements: list[Statement]) -> None:
    """
    Run statements one by one.
    """
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(str(statement), None)
