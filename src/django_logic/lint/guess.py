"""
What an expression holds, as far as the text of one file tells: the names of the classes it may be of.

A guess is None where the text does not tell. Nothing is executed or imported, and the order of statements is not
followed: a name stands for everything that is put into it anywhere in its scope.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from django_logic.lint.scope import Role, Scope, is_class_name

__all__ = ["DICT", "Guess", "Kind", "guess"]

DICT = "dict"
MANAGERS = {"objects", "_default_manager", "_base_manager"}
#: What a manager or queryset answers with one object; anything else it answers is taken for a queryset.
ONE = {
    "get",
    "first",
    "last",
    "latest",
    "earliest",
    "create",
    "aget",
    "afirst",
    "alast",
    "alatest",
    "aearliest",
    "acreate",
}
#: What a manager or queryset answers with neither.
NEITHER = {
    "values",
    "values_list",
    "in_bulk",
    "get_or_create",
    "update_or_create",
    "aget_or_create",
    "aupdate_or_create",
}
#: What makes a queryset out of a queryset, so that ``rows = rows.filter(…)`` changes nothing about what it holds.
REFINING = {
    "all",
    "alias",
    "annotate",
    "defer",
    "distinct",
    "exclude",
    "filter",
    "only",
    "order_by",
    "prefetch_related",
    "select_for_update",
    "select_related",
    "using",
}
SHORTCUTS = {"get_object_or_404", "aget_object_or_404", "get_list_or_404", "aget_list_or_404"}


class Kind(Enum):
    """
    Say whether a guess is about a class, its managers and querysets, its objects, or the one a method runs on.
    """

    CLASS = auto()
    QUERY = auto()
    OBJECT = auto()
    SELF = auto()


@dataclass(frozen=True, slots=True)
class Guess:
    """
    Hold the classes an expression may be of, as dotted names where the module is known.
    """

    names: frozenset[str]
    kind: Kind = Kind.OBJECT


def guess(node: ast.AST, scope: Scope, seen: frozenset[tuple[int, str]] = frozenset()) -> Guess | None:
    """
    Tell which classes an expression may be of, None where the text does not tell.
    """
    match node:
        case ast.Name(id=name):
            return guess_name(name, scope, seen)
        case ast.Dict() | ast.DictComp():
            return Guess(frozenset({DICT}))
        case ast.Await(value=value) | ast.NamedExpr(value=value):
            return guess(value, scope, seen)
        case ast.Subscript(value=value):
            found = guess(value, scope, seen)
            return found if found is not None and found.kind is Kind.QUERY else None
        case ast.IfExp(body=body, orelse=other):
            return merged(guess(part, scope, seen) for part in (body, other))
        case ast.BoolOp(values=values):
            return merged(guess(part, scope, seen) for part in values)
        case ast.Attribute(value=value, attr=name):
            found = None if is_class_name(name) else guess(value, scope, seen)
            return guess_attribute(found, name)
        case ast.Call():
            return guess_call(node, scope, seen)
    return None


def merged(guesses: Iterable[Guess | None]) -> Guess | None:
    """
    Join guesses; one that is unknown makes the whole unknown.
    """
    listed = list(guesses)
    known = [found for found in listed if found is not None]
    if not known or len(known) < len(listed):
        return None
    told = [found.kind for found in known if found.names]
    return Guess(frozenset().union(*(found.names for found in known)), told[0] if told else Kind.OBJECT)


def guess_name(name: str, scope: Scope, seen: frozenset[tuple[int, str]]) -> Guess | None:
    """
    Tell what a name stands for. A name within its own definition adds nothing.
    """
    bound = scope.find(name)
    if bound is None:
        return Guess(frozenset({name}), Kind.CLASS) if is_class_name(name) or name == DICT else None
    home, sources = bound
    if (id(home), name) in seen:
        return Guess(frozenset())
    found = merged(guess_source(role, source, home, seen | {(id(home), name)}) for role, source in sources)
    return found if found is not None and found.names else None


def guess_source(role: Role, source: ast.AST | str, scope: Scope, seen: frozenset[tuple[int, str]]) -> Guess | None:
    """
    Tell what one way of binding puts into a name.
    """
    match role, source:
        case Role.VALUE, ast.AST():
            return guess(source, scope, seen)
        case Role.ANNOTATION, ast.AST():
            return read_annotation(source, scope)
        case Role.ITEM, ast.AST():
            found = guess(source, scope, seen)
            return Guess(found.names) if found is not None and found.kind is Kind.QUERY else None
        case Role.CLASS, str():
            return Guess(frozenset({source}), Kind.CLASS)
        case Role.SELF, str():
            return Guess(frozenset({source}), Kind.SELF)
        case Role.KEYWORDS, _:
            return Guess(frozenset({DICT}))
    return None


def guess_attribute(owner: Guess | None, name: str) -> Guess | None:
    """
    Tell what an attribute is: a class in a module or class, or a class's manager; an object's attribute is unknown.
    """
    if is_class_name(name):
        return Guess(frozenset({name}), Kind.CLASS)
    if owner is None or owner.kind is not Kind.CLASS or name not in MANAGERS:
        return None
    return Guess(owner.names, Kind.QUERY)


def guess_call(call: ast.Call, scope: Scope, seen: frozenset[tuple[int, str]]) -> Guess | None:
    """
    Tell what a call answers: an object of a class, or what a queryset answers.
    """
    match call.func:
        case ast.Name(id="cast") | ast.Attribute(attr="cast") if call.args:
            return read_annotation(call.args[0], scope)
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in SHORTCUTS and call.args:
            found = guess(call.args[0], scope, seen)
            return Guess(found.names) if found is not None else None
        case ast.Attribute(attr="get_model") if call.args and isinstance(call.args[-1], ast.Constant):
            return Guess(frozenset({str(call.args[-1].value).rpartition(".")[2]}), Kind.CLASS)
        case ast.Attribute(value=value, attr=name) if not is_class_name(name):
            found = guess(value, scope, seen)
            if found is not None and not found.names:
                return found if name in REFINING else None
            if found is None or found.kind is not Kind.QUERY or name in NEITHER:
                return None
            return Guess(found.names, Kind.OBJECT if name in ONE else Kind.QUERY)
    found = guess(call.func, scope, seen)
    return Guess(found.names) if found is not None and found.kind is Kind.CLASS else None


def read_annotation(node: ast.AST, scope: Scope) -> Guess | None:
    """
    Tell which classes an annotation names; what it holds many of counts as one of them.
    """
    match node:
        case ast.Constant(value=str(text)):
            try:
                return read_annotation(ast.parse(text, mode="eval").body, scope)
            except (SyntaxError, ValueError):
                return None
        case ast.Constant(value=None):
            return Guess(frozenset({"None"}))
        case ast.BinOp(left=left, right=right):
            return merged(read_annotation(part, scope) for part in (left, right))
        case ast.Subscript(value=value, slice=inside):
            return read_subscript(value, inside, scope)
        case ast.Name(id=name):
            found = scope.find(name)
            if found is not None and found[1][0][0] is Role.VALUE and isinstance(found[1][0][1], ast.AST):
                return read_annotation(found[1][0][1], found[0]) if len(found[1]) == 1 else None
            known = guess_name(name, scope, frozenset())
            bare = None if found is not None else Guess(frozenset({name}))
            return Guess(known.names) if known is not None else bare
        case ast.Attribute(attr=name):
            return Guess(frozenset({name}))
    return None


def read_subscript(value: ast.AST, inside: ast.AST, scope: Scope) -> Guess | None:
    """
    Tell what a generic annotation names: a dict is one whatever it holds, of anything else its parameters count.
    """
    outer = read_annotation(value, scope)
    names = {name.rpartition(".")[2].lower() for name in outer.names} if outer is not None else set()
    if names & {"dict", "mapping", "mutablemapping", "defaultdict"}:
        return Guess(frozenset({DICT}))
    parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
    found = merged(read_annotation(part, scope) for part in parts)
    kind = Kind.OBJECT if names & {"optional", "union", "annotated"} else Kind.QUERY
    return Guess(found.names, kind) if found is not None else None
