"""
Prove how processes nest: names, guards, diamonds, cycles, any source.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ImproperlyConfigured

from django_logic import Action, Process, Transition
from tests.app.models import Ticket
from tests.flows import declare, noting


def offered(process_class: type[Process], state: str = "new", user: Any = None) -> list[str]:
    """
    List what an object in this state could do.
    """
    return process_class(instance=Ticket(pk=1, state=state)).get_available_actions(user=user)


def test_nested_transitions_are_offered_by_the_root() -> None:
    """
    What any nested class declares, the root's accessor offers.
    """
    inner = declare(Transition("inner", ["new"], "done"))
    middle = declare(Transition("middle", ["new"], "done"), nested_processes=[inner])

    root = declare(Transition("outer", ["new"], "done"), nested_processes=[middle])

    assert offered(root) == ["inner", "middle", "outer"]


def test_diamond_offers_each_declaration_once() -> None:
    """
    A class that is reached on two ways counts once, so its actions are not ambiguous.
    """
    shared = declare(Transition("go", ["new"], "done"))
    left, right = declare(nested_processes=[shared]), declare(nested_processes=[shared])

    root = declare(nested_processes=[left, right])

    assert len(root(instance=Ticket(pk=1)).tree.by_action["go"]) == 1
    assert offered(root) == ["go"]


def test_cycle_ends() -> None:
    """
    Classes that nest each other offer all their actions, from either side.
    """
    first = declare(Transition("first", ["new"], "done"))
    second = declare(Transition("second", ["new"], "done"), nested_processes=[first])
    first.nested_processes = [second]

    assert offered(second) == ["first", "second"]
    assert offered(first) == ["first", "second"]


def test_guard_of_a_process_covers_everything_below_it() -> None:
    """
    A process whose own condition fails hides its transitions and those of its subtree, and nothing beside it.
    """
    log: list[Any] = []
    inner = declare(Transition("inner", ["new"], "done"))
    closed = declare(
        Transition("closed", ["new"], "done"), conditions=[noting(log, answer=False)], nested_processes=[inner]
    )

    root = declare(Transition("open", ["new"], "done"), nested_processes=[closed])

    assert offered(root) == ["open"]


def test_permission_of_a_process_is_asked_for_a_user_only() -> None:
    """
    Without a user nobody is asked, with one the process's own permission hides its subtree.
    """
    log: list[Any] = []
    closed = declare(Transition("closed", ["new"], "done"), permissions=[noting(log, answer=False)])
    root = declare(Transition("open", ["new"], "done"), nested_processes=[closed])

    assert offered(root) == ["closed", "open"]
    assert log == []
    assert offered(root, user=AnonymousUser()) == ["open"]


def test_star_means_every_state_declared_anywhere_in_the_tree_but_the_target() -> None:
    """
    ``sources="*"`` covers sources, targets and failed states of all nested classes, not its own target.
    """
    inner = declare(Transition("inner", ["a"], "b", failed_state="broken"))
    root = declare(Transition("stop", "*", "stopped"), Action("look", "*"), nested_processes=[inner])

    assert {state for state in ("a", "b", "broken", "stopped", "?") if "stop" in offered(root, state)} == {
        "a",
        "b",
        "broken",
    }
    assert {state for state in ("a", "b", "broken", "stopped", "?") if "look" in offered(root, state)} == {
        "a",
        "b",
        "broken",
        "stopped",
    }


def test_lock_of_the_nearest_process_holds() -> None:
    """
    A transition's own lock wins over its process's, that over the root's.
    """
    inner = declare(
        Transition("own", ["new"], "done", lock="cache"), Transition("near", ["new"], "done"), lock="nowait"
    )
    root = declare(Transition("far", ["new"], "done"), nested_processes=[inner], lock="row")

    tree = root(instance=Ticket(pk=1)).tree

    assert {name: tree.by_action[name][0].lock for name in ("own", "near", "far")} == {
        "own": "cache",
        "near": "nowait",
        "far": "row",
    }


def test_edges_are_every_move_the_process_may_write() -> None:
    """
    What a constraint has to allow: each source to its target and to failed_state; actions add only the latter.
    """
    root = declare(
        Transition("go", ["a", "b"], "c", failed_state="x"),
        Transition("stay", ["a"], "a"),
        Action("look", ["c"]),
        Action("try", ["c"], failed_state="x"),
    )

    edges = root(instance=Ticket(pk=1)).tree.edges

    assert edges == {("a", "c"), ("b", "c"), ("a", "x"), ("b", "x"), ("c", "x")}


def test_star_that_stands_for_no_state_is_refused() -> None:
    """
    Where nothing else declares a state, ``"*"`` would hold none, so nothing could ever run.
    """
    with pytest.raises(ImproperlyConfigured, match=r"FlowProcess.*'\*'"):
        declare(Action("look", "*"))
