"""
The moves a state column may make, declared in ``Meta.constraints`` and enforced by triggers.

The declaration compares, travels into migrations and validates an instance; the SQL is made elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.ddl_references import Statement
from django.db.models.signals import class_prepared
from django.utils.translation import gettext_lazy as _

from django_logic.constraints import triggers
from django_logic.constraints.edges import Rows, State, in_order, named, rows_of, some_of
from django_logic.states import plain

__all__ = ["TransitionConstraint"]

PATH = "django_logic.constraints.TransitionConstraint"
ILLEGAL_MOVE = _("Moving from “%(from)s” to “%(to)s” is not allowed.")
ILLEGAL_BIRTH = _("Creating it as “%(to)s” is not allowed.")


class TransitionConstraint(models.BaseConstraint):
    """
    Make the database refuse every move that a table does not list.

    `table` maps each state to the states it may move to; members of enums and plain values, in any order, make equal
    constraints. `initial` is the state, or the states, a row may be created in; any, if left out.
    Writing the state a row is in already is always allowed. NULL is a state like others, written None.

    `column` is filled in by Django where it is not the field's name, so that migrations follow a renamed column.

    Raises: ImproperlyConfigured for a mistake in the declaration; IntegrityError from the database.
    """

    def __init__(
        self,
        *,
        field: str,
        table: Any,
        name: str,
        initial: Any = None,
        column: str | None = None,
        violation_error_message: str | None = None,
        violation_error_code: str | None = None,
    ) -> None:
        owner = f"TransitionConstraint {named(f'TransitionConstraint on {field!r}', 'name', name)!r}"
        super().__init__(name=name, violation_error_message=violation_error_message)
        self.field = named(owner, "field", field)
        self.rows: Rows = rows_of(owner, table)
        self.initial = None if initial is None else some_of(owner, initial, self.rows)
        self.column = column
        # Django 4.2 has no code to pass on.
        self.violation_error_code = violation_error_code

    @property
    def states(self) -> tuple[State, ...]:
        """
        Return every state of the table, in order.
        """
        return tuple(self.rows)

    @property
    def edges(self) -> frozenset[tuple[State, State]]:
        """
        Return the declared moves as pairs of source and target.
        """
        return frozenset((source, end) for source, ends in self.rows.items() for end in ends)

    def deconstruct(self) -> tuple[str, Sequence[Any], dict[str, Any]]:
        """
        Return what a migration writes: plain values in canonical order.
        """
        _path, args, keywords = super().deconstruct()
        table: Any = {source: list(ends) for source, ends in self.rows.items()}
        if None in table:
            # Migrations sort a dict by its keys, which None has no place among.
            table = [[source, ends] for source, ends in table.items()]
        keywords |= {"field": self.field, "table": table}
        if self.initial is not None:
            keywords["initial"] = list(in_order(self.initial))
        if self.column is not None:
            keywords["column"] = self.column
        if self.violation_error_code is not None:
            keywords["violation_error_code"] = self.violation_error_code
        path = PATH if type(self) is TransitionConstraint else _path
        return path, args, keywords

    def renamed(self, old: State, new: State) -> TransitionConstraint:
        """
        Return the same constraint with one state called otherwise.
        """
        _path, args, keywords = self.deconstruct()

        def other(states: Collection[State]) -> list[State]:
            return [new if state == old else state for state in states]

        keywords["table"] = [[*other([source]), other(ends)] for source, ends in self.rows.items()]
        if self.initial is not None:
            keywords["initial"] = other(self.initial)
        return type(self)(*args, **keywords)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TransitionConstraint):
            return NotImplemented
        return self.deconstruct() == other.deconstruct()

    def __hash__(self) -> int:
        return hash((self.name, self.field, self.edges, self.initial))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: field={self.field!r} name={self.name!r} table={self.rows!r}>"

    def constraint_sql(self, model: Any, schema_editor: Any) -> str:
        """
        Leave the triggers to the end of the migration or of the table's rebuild; CREATE TABLE has no clause for them.
        """
        schema_editor.deferred_sql.extend(triggers.create(self, model, schema_editor.connection))
        return ""

    def create_sql(self, model: Any, schema_editor: Any) -> Statement:  # type: ignore[override]
        """
        Return the trigger on moves; the one on births follows at the end, since an editor takes one statement.

        Nothing is executed here: an editor may ask before the table exists.
        """
        first, *rest = triggers.create(self, model, schema_editor.connection)
        schema_editor.deferred_sql.extend(rest)
        return first

    def remove_sql(self, model: Any, schema_editor: Any) -> Statement | str:  # type: ignore[override]
        """
        Return the last statement that removes the triggers; those before it are executed, and pending ones forgotten.
        """
        triggers.forget(self, model, schema_editor)
        statements = triggers.drop(self, model, schema_editor.connection)
        for statement in statements[:-1]:
            schema_editor.execute(statement, params=None)
        return statements[-1] if statements else ""

    def validate(
        self,
        model: type[models.Model],
        instance: models.Model,
        exclude: Collection[str] | None = None,
        using: str = DEFAULT_DB_ALIAS,
    ) -> None:
        """
        Refuse an instance whose state the database would refuse.

        Transaction: one query by primary key, none for an instance that is being added.
        Raises: ValidationError with the code ``source_state`` or ``initial_state``, unless the constraint has its own.
        """
        field: Any = model._meta.get_field(self.field)
        if field.name in (exclude or ()) or field.attname in instance.get_deferred_fields():
            return
        state = getattr(instance, field.attname)
        if hasattr(state, "resolve_expression"):
            # The database computes it, so only the database can judge it.
            return
        new = stored_value(field, state)
        found = None if instance._state.adding else stored_state(model, field, instance, using)
        if found is None:
            if self.initial is not None and new not in {stored_value(field, entry) for entry in self.initial}:
                raise self.violation(ILLEGAL_BIRTH, "initial_state", {"to": new})
        elif found[0] != new and (found[0], new) not in self.stored_edges(field):
            raise self.violation(ILLEGAL_MOVE, "source_state", {"from": found[0], "to": new})

    def stored_edges(self, field: Any) -> set[tuple[Any, Any]]:
        """
        Return the moves with the values that instances hold.
        """
        return {(stored_value(field, source), stored_value(field, end)) for source, end in self.edges}

    def violation(self, message: Any, code: str, params: dict[str, Any]) -> ValidationError:
        """
        Word a refusal.
        """
        if self.violation_error_message not in (None, self.default_violation_error_message):
            message = self.violation_error_message
        return ValidationError(message, code=self.violation_error_code or code, params={"name": self.name, **params})

    def check(self, model: type[models.Model], connection: BaseDatabaseWrapper) -> list[checks.CheckMessage]:
        """
        Report a column the constraint can't be put on, as Django does for its own constraints.
        """
        problems: list[checks.CheckMessage] = model._check_local_fields({self.field}, "constraints")  # type: ignore[attr-defined]
        if problems:
            return problems
        if not triggers.is_supported(connection):
            return [
                checks.Warning(
                    f"{connection.display_name} does not support the transition constraint {self.name!r}.",
                    hint="Migrating this model there fails. Use a router or Meta.required_db_vendor.",
                    obj=model,
                    id="django_logic.W006",
                )
            ]
        try:
            triggers.guard_for(self, model, connection)
        except ImproperlyConfigured as error:
            return [checks.Error(str(error), obj=model, id="django_logic.E006")]
        return self.check_default(model)

    #: Django 5.1 and 5.2 ask by this name.
    _check = check

    def check_default(self, model: type[models.Model]) -> list[checks.CheckMessage]:
        """
        Warn of a default in which no row could be created.
        """
        field: Any = model._meta.get_field(self.field)
        default = plain(field.get_default()) if field.has_default() and not callable(field.default) else None
        if default is None or self.initial is None or default in self.initial:
            return []
        return [
            checks.Warning(
                f"{model._meta.label}.{field.name} defaults to {default!r}, which {self.name!r} refuses at birth.",
                hint=f"Default to one of {list(in_order(self.initial))!r}, or add {default!r} to initial.",
                obj=model,
                id="django_logic.W007",
            )
        ]


def stored_value(field: Any, state: Any) -> Any:
    """
    Return a state as a plain value of the column's type, or as it is when the column can't hold it.
    """
    try:
        return plain(field.to_python(plain(state)))
    except ValidationError:
        return state


def stored_state(model: type[models.Model], field: Any, instance: models.Model, using: str) -> tuple[Any] | None:
    """
    Read the state of the stored row: a tuple of one, or None when there is no row.
    """
    key = getattr(instance, model._meta.pk.attname)
    row = models.QuerySet(model=model, using=using).filter(pk=key).values_list(field.attname).first()
    return None if row is None else (stored_value(field, row[0]),)


def note_columns(sender: type[models.Model], **_keywords: Any) -> None:
    """
    Tell each constraint of a new model class what its column is called.
    """
    columns = {field.name: field.column for field in sender._meta.local_concrete_fields}
    for constraint in sender._meta.constraints:
        if isinstance(constraint, TransitionConstraint):
            column = columns.get(constraint.field, constraint.field)
            constraint.column = None if column == constraint.field else column


def check_all(
    app_configs: Any = None, databases: Collection[str] | None = None, **_keywords: Any
) -> list[checks.CheckMessage]:
    """
    Ask every transition constraint, where Django itself asks its own kinds only.
    """
    found: list[checks.CheckMessage] = []
    for model in (model for config in app_configs or apps.get_app_configs() for model in config.get_models()):
        for constraint in model._meta.constraints:
            if isinstance(constraint, TransitionConstraint):
                for alias in databases or ():
                    found += constraint.check(model, connections[alias])
    return found


class_prepared.connect(note_columns, dispatch_uid="django_logic.constraints.columns")
if not hasattr(models.BaseConstraint, "_check") and not hasattr(models.BaseConstraint, "check"):
    # Django 4.2 asks no constraint to check itself.
    checks.register(check_all, checks.Tags.models)
