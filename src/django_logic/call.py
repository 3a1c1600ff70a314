"""
One invocation, frozen: who asks what of which object, and the ids that chain calls together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from django.db import models
from django.utils.functional import Promise

from django_logic.states import plain
from django_logic.subject import Column, alias_of, describe, owner_pk
from django_logic.tree import Tree

__all__ = [
    "Call",
    "Lineage",
    "hook_keywords",
    "identify",
    "lineage",
    "make_call",
    "open_calls",
    "running_within",
    "storable",
]

#: Names hooks receive that a caller can't set.
ENGINE_NAMES = ("instance", "state", "exception", "context", "request")

#: Names the engine hands to hooks; a hook that passes its keywords on chains its ids this way.
LINEAGE_NAMES = ("transition_id", "tr_id", "root_id", "parent_id")


#: Keywords of a background call that say when it runs.
SCHEDULE = ("run_at", "delay")


@dataclass(frozen=True, slots=True)
class Lineage:
    """
    Hold the ids a call passes to the calls its hooks make.
    """

    root_id: UUID
    transition_id: UUID


lineage: ContextVar[Lineage | None] = ContextVar("django_logic_lineage", default=None)

#: The rows this context holds at the moment; a hook that moves one of them again is refused.
open_calls: ContextVar[frozenset[Any]] = ContextVar("django_logic_open_calls", default=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """
    Hold one invocation of a process on one object.

    ``action`` is None for a call by target, ``target`` is None for a call by action.
    """

    column: Column
    tree: Tree
    instance: models.Model
    alias: str
    action: str | None
    target: Any
    by_target: bool
    user: Any
    actor: Any
    actor_id: str
    actor_label: str
    reason: str
    expected_version: int | None
    keywords: Mapping[str, Any]
    transition_id: UUID
    root_id: UUID
    parent_id: UUID | None
    context: dict[str, Any]
    #: When a background call wants to run, as its caller said it; no hook gets it.
    schedule: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """
        Return how messages name what was asked for.
        """
        asked = f"transition_to({self.target!r})" if self.by_target else self.action
        return f"{self.tree.root.__name__}.{asked}"

    @property
    def subject(self) -> str:
        """
        Return how messages name the object.
        """
        return describe(self.column, self.instance)

    @property
    def key(self) -> tuple[Any, ...]:
        """
        Return what a lock in this process is about.
        """
        return self.alias, self.column.owner, owner_pk(self.column, self.instance), self.column.field.name


def make_call(
    *,
    column: Column,
    tree: Tree,
    instance: models.Model,
    keywords: dict[str, Any],
    action: str | None = None,
    target: Any = None,
) -> Call:
    """
    Read a caller's keywords into a Call; takes ownership of the dict.

    Raises: TypeError for a keyword that belongs to the engine, or an actor or version of the wrong type.
    """
    name = f"{tree.root.__name__}.{action or 'transition_to'}"
    refuse_engine_names(name, keywords)
    user, actor = read_requester(name, keywords)
    (actor_id, actor_label), transition_id = identify(actor), uuid4()
    root_id, parent_id = read_lineage(keywords)
    return Call(
        column=column,
        tree=tree,
        instance=instance,
        alias=alias_of(instance),
        action=action,
        target=read_target(name, target),
        by_target=action is None,
        user=user,
        actor=actor,
        actor_id=actor_id,
        actor_label=actor_label,
        reason=storable(keywords.pop("reason", "")),
        expected_version=read_version(name, keywords.pop("expected_version", None)),
        schedule=read_schedule(tree, action, target, keywords),
        keywords=keywords,
        transition_id=transition_id,
        root_id=root_id or transition_id,
        parent_id=parent_id,
        context={},
    )


def refuse_engine_names(label: str, keywords: Mapping[str, Any]) -> None:
    """
    Refuse keywords that would shadow what the engine passes to hooks.
    """
    for name in ENGINE_NAMES:
        if name in keywords:
            mend = "Pass user=request.user and what else the hooks need" if name == "request" else "Use another keyword"
            raise TypeError(f"{label}() takes no {name}=: hooks never get a caller's {name}. {mend}.")


def read_lineage(keywords: dict[str, Any]) -> tuple[UUID | None, UUID | None]:
    """
    Take root and parent out of a caller's keywords, else from the call this one is made within.
    """
    given = {key: keywords.pop(key, None) for key in LINEAGE_NAMES}
    ambient = lineage.get()
    root_id = given["root_id"] or (ambient.root_id if ambient else None)
    return root_id, given["transition_id"] or given["tr_id"] or (ambient.transition_id if ambient else None)


def read_requester(name: str, keywords: dict[str, Any]) -> tuple[Any, Any]:
    """
    Take user and actor out of a caller's keywords: whose rights are judged, and who is recorded.

    Raises: TypeError for one that is neither a user object nor, as actor, a text.
    """
    user, actor = keywords.pop("user", None), keywords.pop("actor", None)
    if isinstance(user, (str, int, Promise)):
        raise TypeError(f"{name}: user= takes a user object; found {user!r}. A name belongs into actor=.")
    if user is None and is_user(actor):
        user = actor
    elif actor is not None and not is_user(actor) and not isinstance(actor, (str, Promise)):
        raise TypeError(f"{name}: actor= takes a user object or a short text; found {type(actor).__name__}.")
    return user, user if actor is None else actor


def is_user(actor: Any) -> bool:
    """
    Tell a user object from a name.
    """
    return hasattr(actor, "is_authenticated")


def identify(actor: Any) -> tuple[str, str]:
    """
    Return the id and the label history keeps of whoever asked.
    """
    if actor is None:
        return "", ""
    if isinstance(actor, (str, Promise)):
        return "", storable(actor)[:255]
    key = getattr(actor, "pk", None)
    username = actor.get_username() if hasattr(actor, "get_username") else ""
    return "" if key is None else str(key), storable(username or actor)[:255]


def read_schedule(tree: Tree, action: str | None, target: Any, keywords: dict[str, Any]) -> dict[str, Any]:
    """
    Take what says when out of the keywords of a background call; for others these are words like all others.
    """
    meant = tree.by_target.get(plain(target), ()) if action is None else tree.by_action.get(action, ())
    if not any(candidate.transition.is_background for candidate in meant):
        return {}
    return {name: keywords.pop(name) for name in SCHEDULE if name in keywords}


def read_target(name: str, target: Any) -> Any:
    """
    Return the state a call asks for.

    Raises: TypeError when it is none.
    """
    state = plain(target)
    if state is not None and (isinstance(state, bool) or not isinstance(state, (str, int))):
        raise TypeError(f"{name}: a state is text, a whole number or a member of an enum; found {target!r}.")
    return state


def read_version(name: str, version: Any) -> int | None:
    """
    Return the version a caller expects.

    Raises: TypeError when it is no whole number.
    """
    if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
        raise TypeError(f"{name}: expected_version= takes a whole number; found {version!r}.")
    return version


def storable(value: Any) -> str:
    """
    Return text every database can store: NUL and lone surrogates are replaced.
    """
    text = "" if value is None else str(value)
    if text.isascii() and "\x00" not in text:
        return text
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def hook_keywords(call: Call) -> dict[str, Any]:
    """
    Return what every hook of a call receives beside the instance.
    """
    return {
        **call.keywords,
        "user": call.user,
        "actor": call.actor,
        "reason": call.reason,
        "transition_id": call.transition_id,
        "tr_id": call.transition_id,
        "root_id": call.root_id,
        "parent_id": call.parent_id,
        "context": call.context,
    }


@contextmanager
def running_within(call: Call) -> Iterator[None]:
    """
    Make calls from within this block children of this one.
    """
    token = lineage.set(Lineage(root_id=call.root_id, transition_id=call.transition_id))
    try:
        yield
    finally:
        lineage.reset(token)
