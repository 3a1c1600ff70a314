"""
Prove that modules and functions keep their size, their names and their docstrings.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.source import ROOT, Module, modules

MODULE_LINES = 300
FUNCTION_LINES = 40
# What may be longer, by "module" or "module:function", with the file of the decision that says why.
LONGER_BY_DECISION: dict[str, str] = {}
DECISIONS = Path(__file__).parents[2] / "docs" / "adr"
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "core", "manager", "managers", "base", "misc"}


def lines_of(module: Module) -> dict[str, int]:
    """
    Measure a module that is over its alarm, and each of its functions that is.
    """
    sizes = {}
    lines = len(module.text.splitlines())
    if lines > MODULE_LINES:
        sizes[module.name] = lines
    for function in module.functions():
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES:
            sizes[f"{module.name}:{function.name}"] = length
    return sizes


def test_modules_and_functions_stay_below_their_alarms() -> None:
    """
    A module has at most 300 lines and a function 40, unless a decision says why not.
    """
    sizes = {name: lines for module in modules() for name, lines in lines_of(module).items()}

    too_long = {name: lines for name, lines in sizes.items() if name not in LONGER_BY_DECISION}

    assert too_long == {}


def test_exceptions_from_the_alarms_name_a_decision() -> None:
    """
    Whatever is longer than the alarm is so by a decision that exists, and really is longer.
    """
    sizes = {name: lines for module in modules() for name, lines in lines_of(module).items()}

    unfounded = [
        name for name, file in LONGER_BY_DECISION.items() if not (DECISIONS / file).is_file() or name not in sizes
    ]

    assert unfounded == []


def test_module_names_say_one_duty() -> None:
    """
    No module is called by a word that could hold anything.
    """
    parts = {part for path in ROOT.rglob("*.py") for part in path.relative_to(ROOT).with_suffix("").parts}

    assert parts & FORBIDDEN_NAMES == set()


def test_modules_postpone_annotations() -> None:
    """
    Every module that has code starts with `from __future__ import annotations`.
    """
    without = [
        module.name
        for module in modules()
        if module.tree.body
        and not any(
            isinstance(node, ast.ImportFrom) and node.module == "__future__" and node.names[0].name == "annotations"
            for node in module.tree.body
        )
    ]

    assert without == []


def test_public_names_have_docstrings_with_quotes_on_their_own_lines() -> None:
    """
    Every module, public class and public function says what it is for, in the house's form.
    """
    found = []
    for module in modules():
        if not module.tree.body:
            continue
        public = [
            node
            for node in module.tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
        ]
        for node in (module.tree, *public):
            docstring = ast.get_docstring(node, clean=False)
            if docstring is None or not docstring.startswith("\n"):
                found.append(f"{module.name}: {getattr(node, 'name', 'the module itself')}")

    assert found == []


def test_private_names_are_not_imported_across_modules() -> None:
    """
    What two modules need has a public name.
    """
    found = [
        f"{module.place(node)} {alias.name}"
        for module in modules()
        for node in module.walk()
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("django_logic")
        for alias in node.names
        if alias.name.startswith("_")
    ]

    assert found == []


def test_imports_stand_at_the_top() -> None:
    """
    A function imports nothing, apart from `AppConfig.ready()`, which Django calls once its models exist.
    """
    found = [
        f"{module.place(node)} in {function.name}"
        for module in modules()
        for function in module.functions()
        if function.name != "ready"
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]

    assert found == []
