"""
Read the package's modules as syntax trees, wherever it is installed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import django_logic

ROOT = Path(django_logic.__file__).parent
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """
    Hold one module: its dotted name below the package, its text and its tree.
    """

    name: str
    path: Path
    text: str
    tree: ast.Module

    def walk(self) -> Iterator[ast.AST]:
        """
        Go through every node.
        """
        return ast.walk(self.tree)

    def calls(self) -> Iterator[ast.Call]:
        """
        Go through every call.
        """
        return (node for node in self.walk() if isinstance(node, ast.Call))

    def functions(self) -> Iterator[Function]:
        """
        Go through every function and method, nested ones included.
        """
        return (node for node in self.walk() if isinstance(node, Function))

    def place(self, node: ast.stmt | ast.expr) -> str:
        """
        Name a node the way an editor opens it.
        """
        return f"{self.name}:{node.lineno}"


@cache
def modules() -> tuple[Module, ...]:
    """
    Read every module that people write; generated migrations are left out.
    """
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        relative = path.relative_to(ROOT)
        if "migrations" in relative.parts:
            continue
        name = ".".join(relative.with_suffix("").parts)
        text = path.read_text(encoding="utf-8")
        found.append(Module(name=name, path=path, text=text, tree=ast.parse(text, filename=str(path))))
    return tuple(found)


def called_name(call: ast.Call) -> str:
    """
    Name what is called: `save` for `order.save()`, `setattr` for `setattr(…)`, empty for anything else.
    """
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""
