"""
A project's migrations, run forward and back on a real database without files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections, migrations, models
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.graph import MigrationGraph
from django.db.migrations.migration import Migration
from django.db.migrations.operations.base import Operation
from django.db.migrations.questioner import MigrationQuestioner
from django.db.migrations.state import ModelState, ProjectState

APP = "yard"

#: What our triggers leave in a database, by vendor; other tests' tables have none of these names.
TRACES = {
    "postgresql": """
        SELECT tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE NOT tgisinternal AND c.relname LIKE 'yard%'
        UNION ALL
        SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND p.oid::regprocedure::text LIKE '%yard%'
    """,
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name LIKE '%yard%'",
    "mysql": """
        SELECT trigger_name FROM information_schema.triggers
        WHERE event_object_schema = DATABASE() AND event_object_table LIKE 'yard%'
    """,
}


class Timeline:
    """
    Hold a project's state and the migrations that led to it; one step is one migration.
    """

    def __init__(self, alias: str = "default") -> None:
        self.alias = alias
        self.state = ProjectState()
        self.steps: list[tuple[Migration, ProjectState]] = []

    @property
    def connection(self) -> Any:
        """
        Return the connection of the alias.
        """
        return connections[self.alias]

    def forward(self, *operations: Operation, atomic: bool = True) -> None:
        """
        Apply one migration.
        """
        migration = Migration(f"{len(self.steps):04}", APP)
        migration.operations = list(operations)
        migration.atomic = atomic
        before = self.state.clone()
        with self.connection.schema_editor(atomic=atomic) as editor:
            self.state = migration.apply(self.state, editor)
        self.steps.append((migration, before))

    def back(self) -> None:
        """
        Take the newest migration back.
        """
        migration, before = self.steps.pop()
        with self.connection.schema_editor(atomic=migration.atomic) as editor:
            migration.unapply(before.clone(), editor)
        self.state = before

    def again(self) -> None:
        """
        Take the newest migration back and apply it once more.
        """
        migration, _before = self.steps[-1]
        self.back()
        self.forward(*migration.operations, atomic=migration.atomic)

    def model(self, name: str = "Order") -> Any:
        """
        Return a model as it is now.
        """
        return self.state.apps.get_model(APP, name)

    def rows(self, name: str = "Order") -> Any:
        """
        Return a model's rows on the alias.
        """
        return self.model(name)._default_manager.using(self.alias)

    def traces(self) -> list[str]:
        """
        Name every trigger and function that our constraints left on the yard's tables.
        """
        with self.connection.cursor() as cursor:
            cursor.execute(TRACES[self.connection.vendor])
            return sorted(row[0] for row in cursor.fetchall())

    def run(self, sql: str, parameters: Any = None) -> list[Any]:
        """
        Execute SQL as another service would.
        """
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall()) if cursor.description else []

    def todo(self, *declared: type[models.Model], **answers: bool) -> list[Operation]:
        """
        Return what makemigrations would write for classes as the code declares them now.
        """
        questioner = MigrationQuestioner({"ask_initial": True, **answers})
        wanted = ProjectState()
        for model in declared:
            wanted.add_model(ModelState.from_model(model))
        found = MigrationAutodetector(self.state.clone(), wanted, questioner).changes(graph=MigrationGraph())
        return [operation for migration in found.get(APP, []) for operation in migration.operations]

    def migrate_to(self, *declared: type[models.Model]) -> list[Operation]:
        """
        Apply what makemigrations would write, and return it.
        """
        operations = self.todo(*declared)
        if operations:
            self.forward(*operations)
        return operations

    def replacing(self, constraint: Any, name: str = "Order") -> list[Operation]:
        """
        Return the operations that put a constraint in the place of the one by its name.
        """
        return [migrations.RemoveConstraint(name, constraint.name), migrations.AddConstraint(name, constraint)]

    def drop_everything(self) -> None:
        """
        Delete what tables are left.
        """
        tables = self.connection.introspection.table_names()
        # MySQL drops no table that another one refers to.
        with self.connection.constraint_checks_disabled(), self.connection.schema_editor() as editor:
            for model in self.state.apps.get_models():
                if model._meta.db_table in tables and model._meta.app_label == APP:
                    editor.delete_model(model)


@contextmanager
def timeline(alias: str = "default") -> Iterator[Timeline]:
    """
    Give a timeline whose tables are gone afterwards.
    """
    line = Timeline(alias)
    try:
        yield line
    finally:
        line.drop_everything()


def create_order(*constraints: Any, name: str = "Order", fields: Any = (), **options: Any) -> migrations.CreateModel:
    """
    Return the operation that creates a model with a state.
    """
    columns = {
        "id": models.BigAutoField(primary_key=True),
        "status": models.CharField(max_length=20, default="draft"),
        **dict(fields),
    }
    return migrations.CreateModel(name, list(columns.items()), {"constraints": list(constraints), **options})
