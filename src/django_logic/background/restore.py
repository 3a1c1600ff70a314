"""
From a row back to the call it was made by: model, object, process, declaration, keywords, people.

What this code does not know may be known to newer code, so it is told apart from what is gone for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from django.apps import apps
from django.core.exceptions import FieldDoesNotExist, ObjectDoesNotExist, ValidationError
from django.db import models

from django_logic.background import codec
from django_logic.background.models import TransitionMessage
from django_logic.background.people import actor_of, user_of
from django_logic.binding import ProcessManager
from django_logic.call import Call
from django_logic.reads import Reading, Shape, read_row
from django_logic.subject import Column, column_of, state_of
from django_logic.transitions import Transition
from django_logic.tree import Candidate, Tree, dotted, tree_of

__all__ = [
    "Declaration",
    "InstanceGone",
    "Restored",
    "Unknown",
    "declaration_of",
    "declared",
    "find_class",
    "load",
    "loaded",
    "reading_of",
    "rebuild",
    "restore",
]

#: Keys of a row's keywords that no caller can use; durable rows keep what hooks shared and what failed there.
CONTEXT, EXCEPTION = "context", "exception"


class Unknown(Exception):
    """
    This code does not know what the row asks for; other code may.
    """


class InstanceGone(Exception):
    """
    The object was deleted, so nobody will ever do the work.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """
    Hold a call as it was made, the declaration it meant, and what failed it for a failure callback's row.
    """

    call: Call
    candidate: Candidate
    #: The row it was restored from; without its keywords where those can't be read.
    message: TransitionMessage
    #: The state that was read; what hooks assign afterwards changes the instance only.
    state: Any
    failure: Any = None


class Declaration(NamedTuple):
    """
    Name what a row is about: the model, the process, the declaration and the column it moves.
    """

    model: type[models.Model]
    tree: Tree
    candidate: Candidate
    column: Column


def declaration_of(message: TransitionMessage) -> Declaration:
    """
    Find model, process, declaration and column of a row; asks no database.

    Raises: Unknown where this code has none of that name, or several.
    """
    model: Any
    try:
        model = apps.get_model(message.model_class or f"{message.app_label}.{message.model_name}")
    except (LookupError, ValueError) as error:
        raise Unknown(f"no model {message.model_class!r} is installed here") from error
    try:
        process_class = bound_process(model, message.process_class) or find_class(message.process_class)
    except ImportError as error:
        raise Unknown(f"the process {message.process_class!r} can't be imported here: {error}") from error
    if not (isinstance(process_class, type) and hasattr(process_class, "nested_processes")):
        raise Unknown(f"{message.process_class!r} is no process here")
    tree = tree_of(process_class)
    candidate = candidate_of(message, tree)
    try:
        column = column_of(model, message.field_name, message.process_name)
    except FieldDoesNotExist as error:
        raise Unknown(f"{model._meta.label} has no field {message.field_name!r} here") from error
    return Declaration(model, tree, candidate, column)


def declared(message: TransitionMessage) -> Transition | None:
    """
    Return the declaration of a row, None where this code has none or can't import it.
    """
    try:
        return declaration_of(message).candidate.transition
    except Exception:  # whatever importing a broken module raises; it is told as an attempt's error
        return None


def bound_process(model: type[models.Model], path: str) -> Any:
    """
    Return the process of that name which the model is bound to, None where it is bound to none.
    """
    bindings = ProcessManager.bindings_of(model)
    return next((entry.process_class for entry in bindings if dotted(entry.process_class) == path), None)


def find_class(path: str) -> Any:
    """
    Import a class by its module and qualified name, one inside another class too.

    Raises: ImportError when there is none.
    """
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:length])
        try:
            found: Any = import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and not (name == error.name or name.startswith(f"{error.name}.")):
                raise  # the module is there and needs one that is not
            continue
        try:
            for part in parts[length:]:
                found = getattr(found, part)
        except AttributeError as error:
            raise ImportError(f"{name} has no {'.'.join(parts[length:])}") from error
        return found
    raise ImportError(f"no module holds {path!r}")


def candidate_of(message: TransitionMessage, tree: Tree) -> Candidate:
    """
    Find the declaration a row names: by its declaring class, else by its name alone if that is unique.
    """
    named = [entry for entry in tree.by_action.get(message.transition_name, ()) if entry.transition.is_background]
    exact = [entry for entry in named if dotted(entry.owner) == message.owning_process_class]
    for found in (exact, named):
        if len(found) == 1:
            return found[0]
    what = "several background declarations" if named else "no background declaration"
    raise Unknown(
        f"{message.process_class} has {what} called {message.transition_name!r}"
        f" (declared by {message.owning_process_class or 'an unknown class'})"
    )


def restore(message: TransitionMessage, alias: str) -> Restored:
    """
    Rebuild the call of a row, with the object as it is now.

    Raises: Unknown, InstanceGone, and what decoding the keywords raises.
    """
    declaration = declaration_of(message)
    return rebuild(message, alias, declaration, load(message, declaration, alias))


def rebuild(message: TransitionMessage, alias: str, declaration: Declaration, instance: models.Model) -> Restored:
    """
    Rebuild the call of a row about an object.

    Raises: what decoding the keywords raises.
    """
    _model, tree, candidate, column = declaration
    needs_people = message.user_id is not None or bool(message.actor_id or message.actor_label)
    user = user_of(message) if needs_people else None
    keywords = codec.decode(message.kwargs, alias) if message.kwargs else {}
    context, failure = keywords.pop(CONTEXT, None), keywords.pop(EXCEPTION, None)
    call = Call(
        column=column,
        tree=tree,
        instance=instance,
        alias=alias,
        action=message.transition_name,
        target=None,
        by_target=False,
        user=user,
        actor=actor_of(message, user) if needs_people else None,
        actor_id=message.actor_id,
        actor_label=message.actor_label,
        reason=message.reason,
        expected_version=None,
        keywords=keywords,
        transition_id=message.transition_id,
        root_id=message.root_id,
        parent_id=message.parent_id,
        context=dict(context) if isinstance(context, Mapping) else {},
    )
    return Restored(call=call, candidate=candidate, message=message, state=state_of(column, instance), failure=failure)


def reading_of(message: TransitionMessage, declaration: Declaration) -> Reading | None:
    """
    Return the read of a row's object that is compiled once; None for a model whose base manager reads in its own way.

    Raises: InstanceGone where no object has such a key.
    """
    model: Any = declaration.model
    key: Any = declaration.column.owner._meta.pk
    try:
        value = key.to_python(message.instance_id)
    except (ValidationError, ValueError) as error:
        raise gone(message) from error
    if type(model._base_manager) is not models.Manager:
        return None
    attributes = tuple(entry.attname for entry in model._meta.concrete_fields)
    return Reading(Shape(model, key.name, attributes), value)


def load(message: TransitionMessage, declaration: Declaration, alias: str) -> models.Model:
    """
    Load the object through the base manager, since a filtered one may hide it.

    Raises: InstanceGone.
    """
    reading = reading_of(message, declaration)
    if reading is not None:
        return loaded(message, alias, reading, read_row(alias, reading))
    model, key = declaration.model, declaration.column.owner._meta.pk
    try:
        instance: models.Model = model._base_manager.using(alias).get(**{key.name: message.instance_id})
    except ObjectDoesNotExist as error:
        raise gone(message) from error
    return instance


def loaded(message: TransitionMessage, alias: str, reading: Reading, row: Any) -> models.Model:
    """
    Make the object of the row that was read, as a plain manager does.

    Raises: InstanceGone where there was none: no row, or one without a key.
    """
    model, attributes = reading.shape.model, reading.shape.attributes
    if row is None or row[attributes.index(model._meta.pk.attname)] is None:
        raise gone(message)
    return model.from_db(alias, attributes, row)


def gone(message: TransitionMessage) -> InstanceGone:
    """
    Build the error for an object that is not there.
    """
    return InstanceGone(f"{message.subject} is gone")
