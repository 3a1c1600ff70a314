"""
A starter test for a bound process, as text: one method for each declared edge, and the matrix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django_logic.hooks import name_of
from django_logic.machines import Machine
from django_logic.transitions import Transition
from django_logic.tree import Candidate, Tree, tree_of

__all__ = ["starter_test"]

MODULE = '''"""
Test the moves of {label}.
"""

from django_logic.testing import ProcessScenario, assert_matrix

from {model_module} import {model}
{imports}

{classes}'''

CLASS = """
class Test{process}(ProcessScenario):
    process_class = {process}
    model = {model}
    state_field = {field!r}
    process_name = {process_name!r}
{methods}
    def test_matrix(self):
        assert_matrix({process}, {model}{database})
"""

METHOD = """
    def test_{name}(self):
        {noun} = self.instance_in({source!r})

        self.{method}({noun}, {action!r})

        self.assert_state({noun}, {target!r})
"""


def starter_test(machine: Machine) -> str:
    """
    Write the test module of a machine; it runs as it stands where guards let everybody through and hooks work in tests.
    """
    model = machine.column.owner
    imports = sorted(
        {f"from {process.__module__} import {process.__qualname__}" for process in machine.process_classes}
    )
    return MODULE.format(
        label=machine.label,
        model=model.__name__,
        model_module=model.__module__,
        imports="\n".join(imports),
        classes="\n".join(class_of(machine, process) for process in machine.process_classes),
    )


def class_of(machine: Machine, process_class: Any) -> str:
    """
    Write the test case of one process class.
    """
    column = machine.column
    is_guarded = any(
        hasattr(entry, "edges") and getattr(entry, "field", None) == column.name
        for entry in column.owner._meta.constraints
    )
    methods = {method.partition("(self)")[0]: method for method in methods_of(machine, process_class)}
    return CLASS.format(
        process=process_class.__name__,
        model=column.owner.__name__,
        field=column.name,
        process_name=column.process_name,
        methods="".join(methods.values()),
        database="" if is_guarded else ", database=False",
    )


def methods_of(machine: Machine, process_class: Any) -> Iterator[str]:
    """
    Write one method for each source of each declaration.
    """
    noun, tree = machine.column.model_name, tree_of(process_class)
    for candidate in tree.candidates:
        transition = candidate.transition
        # The busy state is one as well: from there lost work is begun again.
        for source in sorted(candidate.sources - {transition.in_progress_state}, key=str):
            yield METHOD.format(
                name=identifier(f"{transition.action_name}_from_{source}"),
                noun=noun,
                source=source,
                method="background_transition" if transition.is_background else "transition",
                action=transition.action_name,
                target=end_of(tree, transition, source),
            ) + "".join(hook_lines(candidate))


def end_of(tree: Tree, transition: Transition, source: Any) -> Any:
    """
    Return the state in which an object ends, through what is declared to follow.
    """
    end = source if transition.is_action else transition.target
    for _ in tree.candidates:  # a circle ends as well
        following = tree.by_action.get(transition.next_transition or "", ())
        possible = [entry.transition for entry in following if end in entry.sources]
        if len(possible) != 1:
            break
        transition = possible[0]
        end = end if transition.is_action else transition.target
    return end


def hook_lines(candidate: Candidate) -> Iterator[str]:
    """
    Write the assertions about the hooks of a declaration.
    """
    transition = candidate.transition
    effects = [name_of(hook) for hook in (*transition.prepare, *transition.side_effects)]
    if effects:
        yield f"        self.assert_side_effects_ran({effects!r})\n"
    if transition.callbacks:
        yield f"        self.assert_callbacks_ran({[name_of(hook) for hook in transition.callbacks]!r})\n"


def identifier(text: str) -> str:
    """
    Make a name of a text.
    """
    return re.sub(r"\W+", "_", text).strip("_").lower()
