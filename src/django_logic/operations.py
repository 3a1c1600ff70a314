"""
Migration operations for what a process leaves in the database.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import migrations, transaction
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState, ProjectState

from django_logic.constraints import TransitionConstraint
from django_logic.constraints.conditions import renamed_entry, renamed_field
from django_logic.constraints.edges import State, refuse_mixture, states_of
from django_logic.constraints.stored import rename_records, rename_rows, settle
from django_logic.states import nearest

__all__ = ["RenameState"]


class RenameState(Operation):
    """
    Call one state otherwise: in the rows, in their history, and in every constraint, index, choice and default.

    ``RenameState("order", "status", "processing", "in_progress")`` alone in a migration is enough; afterwards
    ``makemigrations`` finds nothing more to do. `label` is the new label, where the choice has one of its own.
    Put a change of the moves themselves into an operation after it.

    Transaction: one, with the model's table locked against every other use, on PostgreSQL and SQLite. MySQL commits
    each step, and no trigger guards the table between them: stop the writers there.
    Raises: ImproperlyConfigured for an unknown state, or one that exists already, since two states can't become one.
    """

    reversible = True
    reduces_to_sql = True

    def __init__(
        self,
        model_name: str,
        field: str,
        old: Any,
        new: Any,
        label: str | None = None,
        elidable: bool = False,
    ) -> None:
        self.model_name = model_name
        self.field = field
        self.old, self.new = states_of(f"RenameState on {model_name}.{field}", [old, new])
        refuse_mixture(self.owner, (self.old, self.new))
        self.label = label
        if elidable:
            self.elidable = elidable  # type: ignore[misc]
        if self.old == self.new:
            raise ImproperlyConfigured(f"{self.owner}: both names are {self.old!r}. Give the new one.")

    @property
    def owner(self) -> str:
        """
        Return how messages call the operation.
        """
        return f"RenameState on {self.model_name}.{self.field}"

    @property
    def model_name_lower(self) -> str:
        """
        Return the key of the model in a project's state.
        """
        return self.model_name.lower()

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """
        Return what a migration writes.
        """
        keywords: dict[str, Any] = {
            "model_name": self.model_name,
            "field": self.field,
            "old": self.old,
            "new": self.new,
        }
        if self.label is not None:
            keywords["label"] = self.label
        if self.elidable:
            keywords["elidable"] = True
        return type(self).__name__, [], keywords

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """
        Rename the state in what migrations know of the model.
        """
        key = app_label, self.model_name_lower
        model_state = state.models.get(key)
        if model_state is None or self.field not in model_state.fields:
            raise ImproperlyConfigured(
                f"{self.owner}: {app_label} has no such model with a field of its own by that name."
                " Name the model that declares the field."
            )
        field = model_state.fields[self.field]
        self._require_sense(model_state, field)
        told = renamed_field(field, self.old, self.new, self.label)
        if told is not field:
            state.alter_field(*key, self.field, told, preserve_default=True)
        for option in ("constraints", "indexes"):
            entries = state.models[key].options.get(option, [])
            state.models[key].options[option] = [
                renamed_entry(entry, self.field, self.old, self.new) for entry in entries
            ]
        state.reload_model(*key, delay=True)

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """
        Rename in the database.
        """
        self._carry(app_label, schema_editor, (from_state, to_state), (self.old, self.new))

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """
        Rename back.
        """
        self._carry(app_label, schema_editor, (from_state, to_state), (self.new, self.old))

    def references_model(self, name: str, app_label: str) -> bool:
        """
        Tell whether the operation is about a model.
        """
        return name.lower() == self.model_name_lower

    def describe(self) -> str:
        """
        Say in one line what the operation does.
        """
        return f"Rename state {self.old!r} of {self.model_name}.{self.field} to {self.new!r}"

    @property
    def migration_name_fragment(self) -> str:
        """
        Return the operation's part in the name of a migration.
        """
        return f"rename_state_{self.model_name_lower}_{self.field.lower()}"

    def _require_sense(self, model_state: ModelState, field: Any) -> None:
        longest = getattr(field, "max_length", None)
        if longest is not None and isinstance(self.new, str) and len(self.new) > longest:
            raise ImproperlyConfigured(
                f"{self.owner}: the column has room for {longest} characters; {self.new!r} has {len(self.new)}."
                " Widen the field in an operation before."
            )
        for entry in model_state.options.get("constraints", []):
            if not isinstance(entry, TransitionConstraint) or entry.field != self.field:
                continue
            if self.old in entry.rows and self.new in entry.rows:
                raise ImproperlyConfigured(
                    f"{self.owner}: {entry.name!r} has both {self.old!r} and {self.new!r}; two states can't become one."
                    " Move the rows along the table instead."
                )
            if self.old not in entry.rows and self.new not in entry.rows:
                raise ImproperlyConfigured(
                    f"{self.owner}: {entry.name!r} knows no state {self.old!r}; it knows {list(entry.states)!r}."
                    f"{nearest(self.old, entry.states)}"
                )

    def _carry(
        self,
        app_label: str,
        editor: Any,
        states: tuple[ProjectState, ProjectState],
        names: tuple[State, State],
    ) -> None:
        connection = editor.connection
        model = states[1].apps.get_model(app_label, self.model_name)
        if not self.allow_migrate_model(connection.alias, model):
            return
        lifted, laid = self._around(app_label, *states)
        in_one = connection.features.can_rollback_ddl and not editor.collect_sql
        with transaction.atomic(using=connection.alias) if in_one else nullcontext():
            state = states[0]
            settle(editor)
            for operation in lifted:
                state = step(operation, app_label, editor, state)
            rename_rows(self.owner, model, self.field, names, editor)
            rename_records(model, self.field, names, editor)
            settle(editor)
            for operation in laid:
                state = step(operation, app_label, editor, state)

    def _around(
        self, app_label: str, before: ProjectState, after: ProjectState
    ) -> tuple[list[Operation], list[Operation]]:
        """
        Return what has to go before the rows change, and what has to come after.
        """
        old, new = (state.models[app_label, self.model_name_lower] for state in (before, after))
        lifted: list[Operation] = []
        laid: list[Operation] = []
        if has_other_database_default(old.fields[self.field], new.fields[self.field]):
            laid.append(migrations.AlterField(self.model_name, self.field, new.fields[self.field]))
        for option, remove, add in (
            ("constraints", migrations.RemoveConstraint, migrations.AddConstraint),
            ("indexes", migrations.RemoveIndex, migrations.AddIndex),
        ):
            for entry, told in zip(old.options.get(option, []), new.options.get(option, []), strict=True):
                guards = isinstance(entry, TransitionConstraint) and entry.field == self.field
                if guards or entry != told:
                    lifted.append(remove(self.model_name, entry.name))
                    laid.append(add(self.model_name, told))
        return lifted, laid


def has_other_database_default(before: Any, after: Any) -> bool:
    """
    Tell whether the default that the database itself fills in differs.
    """
    return bool(before.deconstruct()[3].get("db_default") != after.deconstruct()[3].get("db_default"))


def step(operation: Operation, app_label: str, editor: Any, state: ProjectState) -> ProjectState:
    """
    Run one operation of Django's and return the state after it.
    """
    after = state.clone()
    operation.state_forwards(app_label, after)
    operation.database_forwards(app_label, editor, state, after)
    return after
