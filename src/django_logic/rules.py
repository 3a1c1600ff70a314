"""
What a process class and a binding have to obey: one small function for each rule.

Each raises ImproperlyConfigured with the dotted path, what was found and the mend.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from keyword import iskeyword
from typing import Any

from django.conf import settings
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db import models

from django_logic import conf
from django_logic.exceptions import RefusalReason
from django_logic.hooks import accepts_instance, accepts_user, name_of
from django_logic.states import nearest
from django_logic.transitions import HOOK_SLOTS, Transition, read_hooks, read_messages
from django_logic.tree import ProcessClass, Tree, compile_tree, dotted, tree_of, walk

__all__ = ["check_binding", "check_process", "hooks_of", "signature_offenders"]

logger = logging.getLogger("django-logic")

DUPLICATES = ("quiet", "refuse")
PER_PROCESS_CACHES = ("LocMemCache", "DummyCache")
#: The longest state history can hold.
LONGEST_STATE = 255
LONGEST_NAME = 100


def check_process(process_class: Any) -> None:
    """
    Check a process class as it is created.
    """
    path = dotted(process_class)
    refuse_misspelled(process_class, path)
    check_lists(process_class, path)
    check_choices(process_class, path)
    tree = compile_tree(process_class)
    for candidate in tree.candidates:
        if not candidate.sources:
            raise ImproperlyConfigured(
                f"{candidate.dotted}: sources='*' stands for every declared state but the target, and there is none."
                " Name the states."
            )
    for name, named in tree.by_action.items():
        if hasattr(process_class, name) or name in ("instance", "field_name"):
            raise ImproperlyConfigured(
                f"{path}: the action {name!r} is shadowed by the attribute of that name, so no call could reach it."
                " Rename it."
            )
        locks = {candidate.lock for candidate in named}
        if len(locks) > 1:
            found = ", ".join(sorted(f"{candidate.name}: {candidate.lock}" for candidate in named))
            raise ImproperlyConfigured(
                f"{path}: the declarations of {name!r} take different locks ({found}), but the lock is taken before one"
                " of them is chosen. Give them the same."
            )
    check_refusal_messages(tree, path)


def refuse_misspelled(process_class: Any, path: str) -> None:
    """
    Refuse a class attribute that looks like a slot with a slip of the pen.
    """
    known = ProcessClass.__annotations__
    for name, value in vars(process_class).items():
        if name.startswith("_") or name in known or callable(value) or hasattr(value, "__get__"):
            continue
        hint = nearest(name, known)
        if hint:
            raise ImproperlyConfigured(f"{path}.{name}: nothing reads an attribute of that name.{hint}")


def check_lists(process_class: Any, path: str) -> None:
    """
    Check that every list holds what it should, and store it as a tuple.
    """
    name = process_class.process_name
    if not isinstance(name, str) or not name.isidentifier() or iskeyword(name):
        raise ImproperlyConfigured(f"{path}.process_name must be a name an attribute can have; found {name!r}.")
    for slot, kind in (("transitions", Transition), ("nested_processes", type)):
        value = getattr(process_class, slot)
        if isinstance(value, (str, bytes)) or not isinstance(value, (list, tuple)):
            raise ImproperlyConfigured(f"{path}.{slot} must be a list; found {value!r}.")
        for entry in value:
            if not isinstance(entry, kind) or (kind is type and not hasattr(entry, "nested_processes")):
                wanted = "Process classes" if kind is type else "Transition and Action declarations"
                raise ImproperlyConfigured(f"{path}.{slot} must hold {wanted}; found {entry!r}.")
    for slot in ("conditions", "permissions"):
        read_hooks(f"{path}.{slot}", getattr(process_class, slot))


def check_choices(process_class: Any, path: str) -> None:
    """
    Check the attributes that take one of a few words.
    """
    if process_class.lock is not None and process_class.lock not in conf.LOCKS:
        raise ImproperlyConfigured(f"{path}.lock must be one of {', '.join(conf.LOCKS)}; found {process_class.lock!r}.")
    if process_class.duplicates not in DUPLICATES:
        raise ImproperlyConfigured(
            f"{path}.duplicates must be one of {', '.join(DUPLICATES)}; found {process_class.duplicates!r}."
        )
    for slot in ("refresh", "record_initial_state", "durable_callbacks"):
        if not isinstance(getattr(process_class, slot), bool):
            raise ImproperlyConfigured(f"{path}.{slot} must be True or False; found {getattr(process_class, slot)!r}.")


def check_refusal_messages(tree: Tree, path: str) -> None:
    """
    Check that every key of a refusal map is a code or a guard's name, so that no message waits in vain.
    """
    guards = {name_of(hook) for entry in tree.candidates for hook in (*entry.permissions, *entry.conditions)}
    known = {*map(str, RefusalReason), *guards}
    maps = [(f"{path}.refusal_messages", tree.root.refusal_messages)]
    maps += [(f"{entry.dotted}.refusal_messages", entry.transition.refusal_messages) for entry in tree.candidates]
    for where, words in maps:
        for key in read_messages(where, words):
            if key not in known:
                raise ImproperlyConfigured(
                    f"{where}: {key!r} is neither a refusal code nor a guard.{nearest(key, known)}"
                )


def hooks_of(process_class: Any) -> Iterator[tuple[str, Any]]:
    """
    Yield every hook of a process tree with the dotted name of its place.
    """
    for path in walk(process_class):
        process = path[-1]
        for slot in ("conditions", "permissions"):
            for hook in getattr(process, slot):
                yield f"{dotted(process)}.{slot}", hook
        for transition in process.transitions:
            for slot in HOOK_SLOTS:
                for hook in getattr(transition, slot):
                    yield f"{dotted(process)}.{transition.action_name}.{slot}", hook


def signature_offenders(process_class: Any) -> list[str]:
    """
    List the hooks that can't take what they are called with: the instance, and permissions the user.
    """
    found = []
    for place, hook in hooks_of(process_class):
        name = name_of(hook)
        if not accepts_instance(hook):
            text = f"has no named first parameter for the instance. Write def {name}(instance, **kwargs)."
            found.append(f"{place}: {name} {text}")
        elif place.endswith(".permissions") and not accepts_user(hook):
            text = f"has no second parameter for the user. Write def {name}(instance, user, **kwargs)."
            found.append(f"{place}: {name} {text}")
    return found


def check_binding(model: Any, process_class: Any, state_field: str) -> None:
    """
    Check a model and a process before they are bound.
    """
    if not (isinstance(process_class, type) and hasattr(process_class, "nested_processes")):
        raise ImproperlyConfigured(f"bind_model_process takes a Process class; found {process_class!r}.")
    path = dotted(process_class)
    check_process(process_class)  # what it nests may have been completed since it was created
    if not (isinstance(model, type) and issubclass(model, models.Model)) or model._meta.abstract:
        raise ImproperlyConfigured(f"{path}: only a concrete model can be bound; found {model!r}.")
    where = f"{path} on {model._meta.label}"
    try:
        field = model._meta.get_field(state_field)
    except FieldDoesNotExist:
        names = [entry.name for entry in model._meta.concrete_fields]
        raise ImproperlyConfigured(
            f"{where}: the model has no field {state_field!r}.{nearest(state_field, names)}"
            f" Its fields: {', '.join(names)}."
        ) from None
    if field not in model._meta.concrete_fields:
        raise ImproperlyConfigured(f"{where}: {state_field!r} has no column of its own, so it can't hold a state.")
    for state in tree_of(process_class).states:
        if len(str(state)) > LONGEST_STATE:
            raise ImproperlyConfigured(
                f"{where}: the state {state!r} is longer than {LONGEST_STATE} characters. Shorten it."
            )
    check_lengths(process_class, state_field, where)
    check_next_transitions(process_class, where)
    check_cache(process_class, where)
    offenders = signature_offenders(process_class)
    if offenders and conf.strict_hook_signatures():
        raise ImproperlyConfigured(offenders[0])
    for offender in offenders:
        logger.warning("%s", offender)


def check_lengths(process_class: Any, state_field: str, where: str) -> None:
    """
    Refuse names that the columns of records can't hold.
    """
    names = [("action", name, LONGEST_STATE) for name in tree_of(process_class).by_action]
    names += [("process_name", process_class.process_name, LONGEST_NAME), ("field", state_field, LONGEST_NAME)]
    for kind, name, longest in names:
        if len(name) > longest:
            raise ImproperlyConfigured(f"{where}: the {kind} {name!r} is longer than {longest} characters. Shorten it.")


def check_next_transitions(process_class: Any, where: str) -> None:
    """
    Check that every next transition exists in the tree it is looked up in.
    """
    tree = tree_of(process_class)
    for candidate in tree.candidates:
        following = candidate.transition.next_transition
        if following is not None and following not in tree.by_action:
            raise ImproperlyConfigured(
                f"{where}: {candidate.dotted} names the next transition {following!r}, which nothing"
                f" declares.{nearest(following, tree.by_action)}"
            )


def check_cache(process_class: Any, where: str) -> None:
    """
    Refuse the cache lock on a cache that each process has for itself.
    """
    kinds = {candidate.lock or conf.lock_kind() for candidate in tree_of(process_class).candidates}
    backend = settings.CACHES.get("default", {}).get("BACKEND", "")
    if "cache" in kinds and not settings.DEBUG and backend.rpartition(".")[2] in PER_PROCESS_CACHES:
        raise ImproperlyConfigured(
            f"{where}: lock='cache' needs a cache that all processes share; settings.CACHES['default'] is {backend}."
            " Point it at Redis, Memcached or the database, or use lock='row'."
        )
