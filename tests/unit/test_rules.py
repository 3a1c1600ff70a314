"""
Prove what a process class refuses as it is created.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_logic import Action, Process, Transition
from tests.flows import declare

GO = Transition("go", ["new"], "done")


def passes(instance: Any, **keywords: Any) -> bool:
    """
    Let everybody pass.
    """
    return True


def refused(*transitions: Any, **attributes: Any) -> str:
    """
    Return the words with which a process class is refused.
    """
    with pytest.raises(ImproperlyConfigured) as caught:
        declare(*transitions, **attributes)

    words = str(caught.value)
    assert words.startswith("tests.flows.FlowProcess")
    return words


@pytest.mark.parametrize(
    ("attribute", "meant"),
    [
        ("transition", "transitions"),
        ("transitons", "transitions"),
        ("condition", "conditions"),
        ("permision", "permissions"),
        ("nested_process", "nested_processes"),
        ("duplicate", "duplicates"),
        ("refusal_message", "refusal_messages"),
        ("locks", "lock"),
        ("record_inital_state", "record_initial_state"),
        ("proces_name", "process_name"),
    ],
)
def test_misspelled_attribute_is_refused_with_the_nearest(attribute: str, meant: str) -> None:
    """
    A class attribute that looks like a slot, but is none, is refused, naming the one that was meant.
    """
    words = refused(GO, **{attribute: []})

    assert f".{attribute}: nothing reads" in words
    assert repr(meant) in words


@pytest.mark.parametrize("attribute", ["states", "label", "helper", "STATES", "ui_colour"])
def test_attribute_of_the_users_own_is_no_mistake(attribute: str) -> None:
    """
    A process class may carry constants of its own.
    """
    made = declare(GO, **{attribute: ["new", "done"]})

    assert getattr(made, attribute) == ["new", "done"]


def test_process_may_be_mixed_with_another_class() -> None:
    """
    A mixin's attributes and a class after `Process` in the bases change nothing about the slots.
    """

    class Coloured:
        transition_colours = {"go": "green"}

    first = type("First", (Coloured, Process), {"transitions": [GO]})
    last = type("Last", (Process, Coloured), {"transitions": [GO], "conditions": [passes]})

    assert set(first(instance=None).tree.by_action) == set(last(instance=None).tree.by_action) == {"go"}


@pytest.mark.parametrize(
    "name",
    ["state", "instance", "field_name", "history", "version", "transition_to", "transitions", "why_not", "conditions"],
)
def test_action_named_like_an_attribute_is_refused(name: str) -> None:
    """
    An action that the process's own attribute would hide is refused as the class is created.
    """
    words = refused(Transition(name, ["new"], "done"))

    assert repr(name) in words
    assert "Rename it" in words


def test_action_hidden_by_a_helper_of_the_class_is_refused() -> None:
    """
    A method of the class itself hides an action just as well.
    """
    words = refused(GO, go=lambda self: None)

    assert "'go' is shadowed" in words


def test_action_may_be_named_like_a_helper_of_a_nested_class() -> None:
    """
    Only the attributes of the class that is asked can hide an action.
    """
    nested = declare(Transition("stay", ["new"], "new"), go=lambda self: None)

    made = declare(GO, nested_processes=[nested])

    assert set(made(instance=None).tree.by_action) == {"go", "stay"}


@pytest.mark.parametrize("name", ["", "two words", "1st", None, 5, "a-b", "class"])
def test_process_name_that_no_attribute_can_have_is_refused(name: Any) -> None:
    """
    The accessor has to be an identifier.
    """
    words = refused(GO, name=name)

    assert "process_name" in words


@pytest.mark.parametrize("found", [GO, "go", None, {GO}, ["go"], [None], [GO, Process]])
def test_transitions_that_are_no_list_of_declarations_are_refused(found: Any) -> None:
    """
    ``transitions`` holds declarations only.
    """
    words = refused(transitions=found)

    assert "FlowProcess.transitions must" in words


@pytest.mark.parametrize("found", [Process, None, "Process", [GO], [int], [None]])
def test_nested_processes_that_are_no_list_of_classes_are_refused(found: Any) -> None:
    """
    ``nested_processes`` holds process classes only.
    """
    words = refused(GO, nested_processes=found)

    assert "FlowProcess.nested_processes must" in words


@pytest.mark.parametrize("slot", ["conditions", "permissions"])
@pytest.mark.parametrize("found", [passes, "passes", None, [True], property(lambda self: [])])
def test_guards_of_a_process_that_are_no_callables_are_refused(slot: str, found: Any) -> None:
    """
    A process's own guards obey the rule of every slot.
    """
    words = refused(GO, **{slot: found})

    assert f"FlowProcess.{slot} must" in words


@pytest.mark.parametrize(
    ("attribute", "found"),
    [
        ("lock", "rows"),
        ("lock", "none"),
        ("duplicates", "refused"),
        ("duplicates", True),
        ("duplicates", None),
        ("refresh", "false"),
        ("refresh", None),
        ("record_initial_state", "yes"),
        ("record_initial_state", 1),
    ],
)
def test_attribute_with_a_wrong_value_is_refused(attribute: str, found: Any) -> None:
    """
    A choice or a switch with another value than its own is refused, saying what was found.
    """
    words = refused(GO, **{attribute: found})

    assert f"FlowProcess.{attribute} must" in words
    assert repr(found) in words


@pytest.mark.parametrize("found", ["No.", 5, {"condition": 5}])
def test_refusal_messages_of_a_process_that_are_no_map_are_refused(found: Any) -> None:
    """
    A process's ``refusal_messages`` map codes or guard names to texts.
    """
    words = refused(GO, refusal_messages=found)

    assert "refusal_messages" in words


def test_refusal_message_that_would_wait_in_vain_is_refused() -> None:
    """
    A key that is neither a code nor a guard is refused with the nearest, on the process and on a transition.
    """
    guarded = Transition("go", ["new"], "done", conditions=[passes], refusal_messages={"pases": "No."})

    of_process = refused(GO, refusal_messages={"premission": "No."})
    of_transition = refused(guarded)

    assert "'premission' is neither" in of_process
    assert "'permission'" in of_process
    assert "'pases' is neither" in of_transition
    assert "'passes'" in of_transition


def test_declarations_of_one_name_with_different_locks_are_refused() -> None:
    """
    The lock is taken before one of them is chosen, so they have to agree on it.
    """
    words = refused(Transition("go", ["new"], "done"), Transition("go", ["done"], "new", lock="nowait"))

    assert "'go'" in words
    assert "nowait" in words


def test_declarations_may_share_a_name() -> None:
    """
    Several declarations of one name are legal: the state and the guards decide at the call.
    """
    made = declare(Transition("go", ["new"], "done"), Action("go", ["done"]), Transition("go", ["new"], "other"))

    assert len(made(instance=None).tree.by_action["go"]) == 3


def test_subclass_inherits_and_may_replace_declarations() -> None:
    """
    A process class is an ordinary class: what a subclass doesn't declare it inherits.
    """
    parent = declare(GO, duplicates="refuse")

    same = type("Same", (parent,), {})
    other = type("Other", (parent,), {"transitions": [*parent.transitions, Transition("back", ["done"], "new")]})

    assert set(same(instance=None).tree.by_action) == {"go"}
    assert set(other(instance=None).tree.by_action) == {"go", "back"}
    assert other.duplicates == "refuse"
