"""
What the triggers of one constraint on one table enforce, spelled the way that database stores it.

Each vendor's module turns a guard into statements. Nothing is executed here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured, ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.ddl_references import Statement, Table

from django_logic.constraints.edges import Rows, State

__all__ = [
    "BIRTH",
    "MOVE",
    "Declared",
    "Dialect",
    "Guard",
    "PlaceName",
    "TriggerStatement",
    "fit",
    "guard_of",
    "local_field",
    "spelled",
]

MOVE: Final = "move"
BIRTH: Final = "birth"
#: Raise it when the meaning of the triggers changes: those of an older version then count as not installed.
VERSION = 1
LONGEST_NAME = 63
PLACE_DIGITS = 8

Text: TypeAlias = str | None


class Declared(Protocol):
    """
    Say what a guard needs of the constraint that declares it.
    """

    name: str
    field: str
    rows: Rows
    initial: frozenset[State] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """
    Hold one table's moves and births as texts, NULL as None; `births` is None where any birth is fine.
    """

    name: str
    table: str
    column: str
    keys: tuple[str, ...]
    moves: tuple[tuple[Text, tuple[Text, ...]], ...]
    births: tuple[Text, ...] | None
    quote: Callable[[str], str]

    @property
    def kinds(self) -> tuple[str, ...]:
        """
        Return the kinds of trigger it takes.
        """
        return (MOVE,) if self.births is None else (MOVE, BIRTH)

    @property
    def mark(self) -> str:
        """
        Return the comment that dates every trigger body: two marks are equal when they refuse the same.
        """
        facts = json.dumps([VERSION, self.moves, self.births], sort_keys=True)
        return f"/* django_logic {hashlib.sha256(facts.encode()).hexdigest()[:16]} */"

    def __post_init__(self) -> None:
        """
        Refuse a name that Django's own quoting and executing would garble.
        """
        for identifier, forbidden in ((self.name, '%"`\0'), (self.column, "%"), (self.table, "%")):
            if set(identifier) & set(forbidden):
                raise ImproperlyConfigured(
                    f"TransitionConstraint {self.name!r}: the name {identifier!r} can't be used in a migration."
                    f" Avoid the characters {' '.join(forbidden)!r}."
                )


class Dialect(Protocol):
    """
    Say what a vendor's module offers.
    """

    def created(self, guard: Guard) -> list[Statement]:
        """
        Return the statements that install a guard, none of which holds a percent sign.
        """

    def dropped(self, guard: Guard, connection: BaseDatabaseWrapper) -> list[Statement]:
        """
        Return the statements that remove every trace of a guard, by whatever version installed.
        """

    def bodies(self, guard: Guard, connection: BaseDatabaseWrapper) -> Mapping[str, str]:
        """
        Read the source of the triggers that are in force, by kind.
        """

    def spell(self, value: Any) -> str:
        """
        Return a stored value as the text the triggers compare.
        """

    def literal(self, text: Text) -> str:
        """
        Write a text as SQL that means the same under every server setting.
        """

    def exactly(self, column: str, text: Text) -> str:
        """
        Write a condition that holds for this very text in a quoted column, whatever its collation.
        """


class TriggerStatement(Statement):
    """
    Create a trigger later, as schema editors do, under the name the table has by then.
    """

    def __init__(self, template: str, *, guard: Guard, **parts: Any) -> None:
        super().__init__(template, table=Table(guard.table, guard.quote), **parts)
        self.constraint = guard.name


class PlaceName(Table):
    """
    Name a trigger after its constraint and its table, where all triggers of a database share one namespace.
    """

    def __init__(self, guard: Guard, kind: str) -> None:
        super().__init__(guard.table, guard.quote)
        self.start = fit(guard.name, LONGEST_NAME - len(kind) - PLACE_DIGITS - 2) + f"_{kind}_"

    def __str__(self) -> str:
        return str(self.quote_name(self.start + short_digest(self.table, PLACE_DIGITS)))

    def matches(self, name: str) -> bool:
        """
        Tell whether a trigger is this one, named after this or an earlier name of the table.
        """
        return re.fullmatch(f"{re.escape(self.start)}[0-9a-f]{{{PLACE_DIGITS}}}", name) is not None


def fit(name: str, longest: int = LONGEST_NAME) -> str:
    """
    Return a name that the database takes as it is, shortened by a digest where it is too long.
    """
    if len(name.encode()) <= longest:
        return name
    kept = name.encode()[: longest - 9].decode(errors="ignore")
    return f"{kept}_{short_digest(name, 8)}"


def short_digest(text: str, digits: int) -> str:
    """
    Return the first digits of a text's digest.
    """
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def local_field(owner: str, model: type[models.Model], name: str) -> Any:
    """
    Return a field whose column is in the model's own table.

    Raises: ImproperlyConfigured when another table holds it, or none.
    """
    try:
        field: Any = model._meta.get_field(name)
    except FieldDoesNotExist as error:
        raise ImproperlyConfigured(f"{owner}: {model._meta.label} has no field {name!r}.") from error
    if field not in model._meta.local_concrete_fields:
        raise ImproperlyConfigured(
            f"{owner}: the column of {name!r} is not in the table of {model._meta.label}."
            " Put the constraint on the model that declares the field."
        )
    return field


def spelled(owner: str, field: Any, state: State, connection: BaseDatabaseWrapper, dialect: Dialect) -> Text:
    """
    Return a state as the text of its stored value.

    Raises: ImproperlyConfigured for a state the column can't hold.
    """
    if state is None:
        return None
    try:
        stored = field.get_db_prep_save(state, connection)
    except (TypeError, ValueError, ValidationError) as error:
        raise ImproperlyConfigured(
            f"{owner}: {field.model._meta.label}.{field.name} can't store the state {state!r}: {error}"
        ) from error
    return None if stored is None else dialect.spell(stored)


def guard_of(
    constraint: Declared, model: type[models.Model], connection: BaseDatabaseWrapper, dialect: Dialect
) -> Guard:
    """
    Spell a constraint for the table of a model in one database.

    Raises: ImproperlyConfigured for a state its column can't hold, or a column of another table.
    """
    owner = f"TransitionConstraint {constraint.name!r}"
    field = local_field(owner, model, constraint.field)

    def text(state: State) -> Text:
        return spelled(owner, field, state, connection, dialect)

    rows = constraint.rows.items()
    moves = [(text(source), tuple(text(end) for end in ends if end != source)) for source, ends in rows]
    births = None if constraint.initial is None else sorted(map(text, constraint.initial), key=missing_first)
    keys = getattr(model._meta, "pk_fields", None) or [model._meta.pk]
    return Guard(
        name=constraint.name,
        table=model._meta.db_table,
        column=field.column,
        keys=tuple(key.column for key in keys),
        moves=tuple((source, ends) for source, ends in moves if ends),
        births=None if births is None else tuple(births),
        quote=connection.ops.quote_name,
    )


def missing_first(text: Text) -> tuple[bool, str]:
    """
    Sort texts after NULL.
    """
    return (text is not None, text or "")
