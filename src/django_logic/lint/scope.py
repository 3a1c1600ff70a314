"""
What the names of one file stand for, scope by scope, as far as its text tells.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

__all__ = ["Bindings", "Role", "Scope", "is_class_name", "literals"]

#: Everything a name may stand for: how it gets it, and from what.
Bindings = list[tuple["Role", ast.AST | str]]
SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


class Role(Enum):
    """
    Say how a name gets what it holds.
    """

    VALUE = auto()
    ANNOTATION = auto()
    ITEM = auto()
    CLASS = auto()
    SELF = auto()
    KEYWORDS = auto()
    UNKNOWN = auto()


@dataclass(slots=True)
class Scope:
    """
    Hold what the names of a module, class or function stand for.
    """

    node: ast.AST
    parent: Scope | None = None
    module: str = ""
    names: dict[str, Bindings] = field(default_factory=dict)

    def add(self, name: str, role: Role, source: ast.AST | str = "") -> None:
        """
        Note something a name may stand for.
        """
        self.names.setdefault(name, []).append((role, source))

    def find(self, name: str) -> tuple[Scope, Bindings] | None:
        """
        Return where a name is bound, and to what: names of a class are not seen from its methods.
        """
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names and (scope is self or not isinstance(scope.node, ast.ClassDef)):
                return scope, scope.names[name]
            scope = scope.parent
        return None

    @property
    def enclosing_class(self) -> str:
        """
        Return the class a method belongs to, empty for a function.
        """
        node = self.parent.node if self.parent is not None else None
        return qualified(self.module, node.name) if isinstance(node, ast.ClassDef) else ""

    @classmethod
    def of(cls, node: ast.AST, parent: Scope | None = None, module: str = "") -> Scope:
        """
        Make the scope of a module, class or function.
        """
        scope = cls(node, parent, parent.module if parent is not None else module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            add_parameters(scope, node.args)
        for parameter in getattr(node, "type_params", ()):
            scope.add(parameter.name, Role.UNKNOWN)
        for child in within(node):
            add_names(scope, child)
        return scope


def qualified(module: str, name: str) -> str:
    """
    Return a dotted name, the bare one where the module is not known.
    """
    return f"{module}.{name}" if module else name


def within(node: ast.AST) -> Iterator[ast.AST]:
    """
    Yield the nodes of a scope; of a nested one only the node itself.
    """
    todo = list(ast.iter_child_nodes(node))
    while todo:
        child = todo.pop()
        yield child
        if not isinstance(child, SCOPES):
            todo.extend(ast.iter_child_nodes(child))


def add_parameters(scope: Scope, arguments: ast.arguments) -> None:
    """
    Note what a function's parameters stand for: by annotation, and the first one of a method by its class.
    """
    listed = [*arguments.posonlyargs, *arguments.args]
    for argument in (*listed, *arguments.kwonlyargs):
        if argument.annotation is not None:
            scope.add(argument.arg, Role.ANNOTATION, argument.annotation)
        elif scope.enclosing_class and argument in listed[:1] and argument.arg in ("self", "cls"):
            scope.add(argument.arg, Role.SELF if argument.arg == "self" else Role.CLASS, scope.enclosing_class)
        else:
            scope.add(argument.arg, Role.UNKNOWN)
    if arguments.vararg is not None:
        scope.add(arguments.vararg.arg, Role.UNKNOWN)
    if arguments.kwarg is not None:
        scope.add(arguments.kwarg.arg, Role.KEYWORDS)


def add_names(scope: Scope, node: ast.AST) -> None:
    """
    Note what one statement or expression binds.
    """
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                add_target(scope, target, Role.VALUE, value)
        case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
            scope.add(name, Role.ANNOTATION, annotation)
        case ast.NamedExpr(target=ast.Name(id=name), value=value):
            scope.add(name, Role.VALUE, value)
        case ast.For(target=target, iter=values) | ast.AsyncFor(target=target, iter=values):
            add_target(scope, target, Role.ITEM, values)
        case ast.comprehension(target=target, iter=values):
            add_target(scope, target, Role.ITEM, values)
        case ast.withitem(optional_vars=ast.AST() as target):
            add_target(scope, target, Role.UNKNOWN, node)
        case ast.ExceptHandler(name=str(name)) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            scope.add(name, Role.UNKNOWN)
        case ast.ClassDef(name=name):
            scope.add(name, Role.CLASS, qualified(scope.module, name))
        case ast.ImportFrom(module=module, names=aliases, level=level):
            for alias in aliases:
                is_class = is_class_name(alias.name)
                origin = qualified(module if module is not None and level == 0 else "", alias.name)
                scope.add(alias.asname or alias.name, Role.CLASS if is_class else Role.UNKNOWN, origin)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            scope.add(name, Role.UNKNOWN)
        case _ if type(node).__name__ == "TypeAlias":  # Python 3.12 and newer
            scope.add(node.name.id, Role.VALUE, node.value)  # type: ignore[attr-defined]


def add_target(scope: Scope, target: ast.AST, role: Role, source: ast.AST) -> None:
    """
    Note what a target of an assignment or loop stands for; what is unpacked is not followed.
    """
    if isinstance(target, ast.Name):
        scope.add(target.id, role, source)
        return
    for child in ast.walk(target):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            scope.add(child.id, Role.UNKNOWN)


def literals(node: ast.AST | None, scope: Scope, depth: int = 3) -> set[str]:
    """
    Return the texts written in an expression: one text, those of a list, the keys of a dict; names are followed.
    """
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return set().union(*(literals(part, scope, depth) for part in parts))
        case ast.Starred(value=value):
            return literals(value, scope, depth)
        case ast.Dict(keys=keys, values=values):
            spread = [value for key, value in zip(keys, values, strict=True) if key is None]
            return set().union(*(literals(part, scope, depth) for part in (*filter(None, keys), *spread)))
        case ast.BinOp(left=left, right=right):
            return literals(left, scope, depth) | literals(right, scope, depth)
        case ast.Call(func=ast.Name(id="dict"), args=arguments, keywords=keywords):
            named = {keyword.arg for keyword in keywords if keyword.arg is not None}
            spread = [*arguments, *(keyword.value for keyword in keywords if keyword.arg is None)]
            return named.union(*(literals(part, scope, depth) for part in spread))
        case ast.Name(id=name) if depth and (bound := scope.find(name)) is not None:
            home, sources = bound
            followed = [source for role, source in sources if role is Role.VALUE and isinstance(source, ast.AST)]
            return set().union(*(literals(source, home, depth - 1) for source in followed))
    return set()


def is_class_name(name: str) -> bool:
    """
    Tell whether a name is written like a class: CapitalWords, not CONSTANT.
    """
    bare = name.rpartition(".")[2].lstrip("_")
    return bare[:1].isupper() and not (len(bare) > 1 and bare.isupper())
