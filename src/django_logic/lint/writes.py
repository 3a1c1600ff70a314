"""
The rules: what counts as a write of a state, and whether it may be one of a bound model.

A write is reported unless the text shows that it concerns something else: an audit rather asks once too often.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from django_logic.lint.guess import DICT, Guess, Kind, guess
from django_logic.lint.scope import SCOPES, Scope, literals
from django_logic.lint.watch import Watch, bare_name, words_of

__all__ = ["RULES", "Write", "writes_in"]

#: Each rule's code and what it is about; a file that can't be read is DL000.
RULES = {
    "DL000": "a file that can't be read or parsed",
    "DL001": "assignment: order.status = …, also augmented, unpacked or as a loop's target",
    "DL002": 'assignment by name: setattr(order, "status", …), __setattr__, vars(order)["status"], __dict__["status"]',
    "DL003": "update(status=…) and aupdate() of a queryset or manager",
    "DL004": 'bulk_update(…, ["status"]), and bulk_create() that updates conflicting rows',
    "DL005": 'update_or_create(defaults={"status": …})',
}

#: Names of classes that tell nothing about what their objects are: types of anything, and makers of other objects.
VAGUE = re.compile(
    r"^([A-Z]|Any|Model|Self|object|Protocol)$|^(Any|Some|Base|Abstract|Has|Supports)[A-Z]"
    r"|(Base|Builder|Factory|Like|Mixin|Protocol|T|Type)$"
)
#: Classes whose objects update rows of another class.
QUERIES = re.compile(r"(QuerySet|Manager|Query)$")
#: How much of a write a message shows.
LONGEST = 60


@dataclass(frozen=True, slots=True)
class Write:
    """
    Hold one write of a watched field: by which rule, of which models, and the lines on which a comment may allow it.
    """

    code: str
    field: str
    labels: tuple[str, ...]
    shown: str
    line: int
    column: int
    lines: range


def writes_in(tree: ast.Module, watch: Watch, module: str = "") -> list[Write]:
    """
    Find every write of a watched field in one file, in the order of its lines.
    """
    reader = Reader(watch, Scope.of(tree, module=module))
    reader.visit(tree)
    return sorted(reader.found, key=lambda write: (write.line, write.column, write.code))


class Reader(ast.NodeVisitor):
    """
    Go through one file, scope by scope.
    """

    def __init__(self, watch: Watch, scope: Scope) -> None:
        self.watch = watch
        self.scope = scope
        self.parents = parents_in(scope.node)
        self.statement: ast.stmt = ast.Pass(lineno=1, end_lineno=1, col_offset=0)
        self.found: list[Write] = []

    def visit(self, node: ast.AST) -> None:
        """
        Judge a node, then those below it.
        """
        outer, statement = self.scope, self.statement
        if isinstance(node, ast.stmt):
            self.statement = node
        for code, name, receiver in self.candidates(node):
            if name in self.watch.fields and not self.concerns_another(receiver, name, by_query=code > "DL002"):
                labels = self.watch.fields[name].meant_by(self.names_of(receiver))
                self.found.append(self.write(code, name, labels, cast("ast.expr", node)))
        if isinstance(node, SCOPES):
            self.scope = Scope.of(node, outer)
        self.generic_visit(node)
        self.scope, self.statement = outer, statement

    def candidates(self, node: ast.AST) -> Iterator[tuple[str, str, ast.expr | None]]:
        """
        Yield what a node writes: the rule, the field and whose it is, whatever the field's name.
        """
        match node:
            case ast.Attribute(attr=name, value=receiver, ctx=ast.Store()) if not is_bare_annotation(self.statement):
                yield "DL001", name, receiver
            case ast.Subscript(value=value, slice=key, ctx=ast.Store()) if owner := attribute_dict_of(value):
                yield from (("DL002", name, owner) for name in literals(key, self.scope))
            case ast.Call(func=ast.Name(id="setattr"), args=[receiver, name, _]):
                yield from (("DL002", text, receiver) for text in literals(name, self.scope))
            case ast.Call(func=ast.Attribute(attr="__setattr__", value=value), args=[*first, name, _]):
                receiver = first[0] if first else value
                yield from (("DL002", text, receiver) for text in literals(name, self.scope))
            case ast.Call(func=ast.Attribute(attr=method, value=receiver)):
                yield from ((code, text, receiver) for code, text in self.queries(node, method))

    def queries(self, call: ast.Call, method: str) -> Iterator[tuple[str, str]]:
        """
        Yield the fields a call of a queryset's or manager's method writes.
        """
        given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
        match method.removeprefix("a"):
            case "update":
                spread = [keyword.value for keyword in call.keywords if keyword.arg is None]
                names = set(given).union(*(literals(value, self.scope) for value in spread))
                yield from (("DL003", name) for name in sorted(names))
            case "bulk_update":
                fields = given.get("fields", call.args[1] if len(call.args) > 1 else None)
                yield from (("DL004", name) for name in sorted(literals(fields, self.scope)))
            case "bulk_create" if "update_conflicts" in given:
                yield from (("DL004", name) for name in sorted(literals(given.get("update_fields"), self.scope)))
            case "update_or_create":
                defaults = given.get("defaults", call.args[0] if call.args else None)
                yield from (("DL005", name) for name in sorted(literals(defaults, self.scope)))

    def concerns_another(self, receiver: ast.expr | None, name: str, *, by_query: bool) -> bool:
        """
        Tell whether the text shows that the receiver holds no bound state under this name.
        """
        found = guess(receiver, self.scope) if receiver is not None else None
        if found is not None:
            return all(self.is_another(entry, name, found, by_query=by_query) for entry in found.names)
        match receiver:
            case ast.Name(id=variable) | ast.Attribute(attr=variable):
                return self.watch.means_another_model(variable, name)
        return False

    def names_of(self, receiver: ast.expr | None) -> set[str]:
        """
        Return the names by which the text tells what a receiver is: its class and that one's parents, or its own name.
        """
        found = guess(receiver, self.scope) if receiver is not None else None
        if found is not None:
            bare = set(map(bare_name, found.names))
            return bare.union(*map(self.bases_of, bare))
        match receiver:
            case ast.Name(id=variable) | ast.Attribute(attr=variable):
                return words_of(variable)
        return set()

    def is_another(self, entry: str, name: str, found: Guess, *, by_query: bool) -> bool:
        """
        Tell whether a class is known to hold no bound state under this name.
        """
        bare = bare_name(entry)
        if entry == DICT or self.watch.is_namesake(entry):
            return True
        family = {bare, *self.bases_of(bare)}
        if family & self.watch.fields[name].classes:
            return False
        if self.watch.is_other_model(entry, name):
            return True
        if by_query and any(QUERIES.search(member) for member in family):
            return False
        is_vague = bool(VAGUE.search(bare)) or "Protocol" in family
        return not is_vague or (found.kind is Kind.SELF and not by_query)

    def bases_of(self, name: str) -> set[str]:
        """
        Return the names of a class's parents, as far as this file defines them.
        """
        found: set[str] = set()
        todo = [name]
        while todo:
            new = self.parents.get(todo.pop(), set()) - found
            found |= new
            todo += new
        return found

    def write(self, code: str, name: str, labels: tuple[str, ...], node: ast.expr) -> Write:
        """
        Describe a write; a comment may stand on any line of its statement, of a block's on its own lines alone.
        """
        outer: ast.stmt | ast.expr = node if has_block(self.statement) else self.statement
        text = " ".join(ast.unparse(node).split())
        return Write(
            code=code,
            field=name,
            labels=labels,
            shown=text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…",
            line=node.lineno,
            column=node.col_offset + 1,
            lines=range(outer.lineno, (outer.end_lineno or outer.lineno) + 1),
        )


def parents_in(tree: ast.AST) -> dict[str, set[str]]:
    """
    Return the names of the parents of each class a file defines.
    """
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found.setdefault(node.name, set()).update(name for base in node.bases if (name := last_name(base)))
    return found


def last_name(node: ast.AST) -> str:
    """
    Return the last part of a dotted name, empty for any other expression.
    """
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return last_name(value)
    return ""


def attribute_dict_of(node: ast.AST) -> ast.expr | None:
    """
    Return whose attributes a mapping holds: ``vars(x)`` and ``x.__dict__``.
    """
    match node:
        case ast.Attribute(attr="__dict__", value=owner) | ast.Call(func=ast.Name(id="vars"), args=[owner]):
            return owner
    return None


def is_bare_annotation(statement: ast.AST) -> bool:
    """
    Tell whether a statement only declares a type.
    """
    return isinstance(statement, ast.AnnAssign) and statement.value is None


def has_block(statement: ast.AST) -> bool:
    """
    Tell whether other statements stand within this one.
    """
    return any(isinstance(child, ast.stmt | ast.match_case) for child in ast.iter_child_nodes(statement))
