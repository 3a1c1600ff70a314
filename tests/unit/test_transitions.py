"""
Prove what a declaration stores, and what it refuses on the spot.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import models

from django_logic import Action, Transition


class Status(models.TextChoices):
    """
    Name two states.
    """

    DRAFT = "draft"
    PLACED = "placed"


class Grade(models.IntegerChoices):
    """
    Name integer states, zero among them.
    """

    NONE = 0
    GOLD = 2


SLOTS = ("conditions", "permissions", "prepare", "side_effects", "callbacks", "failure_callbacks")


def passes(instance: Any, **keywords: Any) -> bool:
    """
    Let everybody pass.
    """
    return True


def refused(build: Any, *arguments: Any, **keywords: Any) -> str:
    """
    Return the words with which a declaration is refused.
    """
    with pytest.raises(ImproperlyConfigured) as caught:
        build(*arguments, **keywords)

    return str(caught.value)


def test_declaration_stores_what_it_was_given() -> None:
    """
    Every slot of the contract is an attribute, hooks in the order they were listed.
    """
    made = Transition(
        "approve",
        ["draft"],
        "approved",
        **{slot: [passes, print] for slot in SLOTS},
        failed_state="broken",
        next_transition="ship",
        lock="nowait",
        event="order.approved",
        label="Approve",
        refusal_messages={"condition": "Not now."},
    )

    assert (made.action_name, made.sources, made.target) == ("approve", ("draft",), "approved")
    assert [getattr(made, slot) for slot in SLOTS] == [(passes, print)] * len(SLOTS)
    assert (made.failed_state, made.next_transition, made.lock) == ("broken", "ship", "nowait")
    assert (made.event, made.label) == ("order.approved", "Approve")
    assert made.refusal_messages == {"condition": "Not now."}


def test_declaration_has_quiet_defaults() -> None:
    """
    Only a name, sources and a target are needed.
    """
    made = Transition(action_name="approve", sources=["draft"], target="approved")

    assert made.conditions == made.permissions == made.side_effects == made.callbacks == ()
    assert made.failed_state is made.next_transition is made.lock is made.event is made.label is None
    assert (made.is_background, made.is_action, made.any_source) == (False, False, False)


@pytest.mark.parametrize("name", ["target", "sources", "conditions", "anything"])
def test_declaration_is_frozen(name: str) -> None:
    """
    A declaration can't be changed after it was made, by setting or by removing an attribute.
    """
    made = Transition("approve", ["draft"], "approved")

    with pytest.raises(AttributeError, match="frozen"):
        setattr(made, name, "other")
    with pytest.raises(AttributeError, match="frozen"):
        delattr(made, name)

    assert (made.sources, made.target) == (("draft",), "approved")


def test_changing_a_list_afterwards_changes_no_declaration() -> None:
    """
    A declaration keeps its own copy of every list and map it was given.
    """
    sources, hooks, words = ["draft"], [passes], {"condition": "No."}
    made = Transition("approve", sources, "approved", conditions=hooks, refusal_messages=words)

    sources.append("placed")
    hooks.append(print)
    words["condition"] = "Yes."

    assert (made.sources, made.conditions) == (("draft",), (passes,))
    assert made.refusal_messages == {"condition": "No."}


@pytest.mark.parametrize(
    "sources", [["draft"], ("draft",), {"draft"}, iter(["draft"]), [Status.DRAFT], ["draft", Status.DRAFT]]
)
def test_sources_may_be_any_collection_of_states(sources: Any) -> None:
    """
    Lists, tuples, sets, iterators and enum members all give the plain states, each once.
    """
    made = Transition("place", sources, Status.PLACED)

    assert made.sources == ("draft",)
    assert [type(state) for state in (*made.sources, made.target)] == [str, str]


def test_integer_and_empty_states_are_states() -> None:
    """
    0 and the empty text are states like others, not missing values.
    """
    made = Transition("reset", [Grade.GOLD, ""], Grade.NONE, failed_state=Grade.NONE)

    assert (made.sources, made.target, made.failed_state) == ((2, ""), 0, 0)


def test_star_means_any_source() -> None:
    """
    ``sources="*"`` is the one text that is no mistake.
    """
    made = Transition("cancel", "*", "cancelled")

    assert (made.any_source, made.sources) == (True, ())


def test_action_has_no_target_and_may_take_no_lock() -> None:
    """
    An action takes the same slots without a target, and alone may say ``lock="none"``.
    """
    made = Action("track", ["sent"], side_effects=[passes], lock="none")

    assert (made.is_action, made.target, made.lock, made.side_effects) == (True, None, "none", (passes,))


@pytest.mark.parametrize("sources", ["draft", Status.DRAFT, b"draft", 5, None, [], ()])
def test_sources_that_are_no_list_are_refused(sources: Any) -> None:
    """
    Text, bytes, a lone number, nothing and emptiness are refused as sources, with the place and the mend.
    """
    words = refused(Transition, "approve", sources, "approved")

    assert words.startswith("django_logic.Transition('approve')")
    assert "sources" in words


def test_text_as_sources_is_told_how_to_be_written() -> None:
    """
    The refusal of text shows the list that was meant.
    """
    words = refused(Transition, "approve", "draft", "approved")

    assert "found the text 'draft'" in words
    assert "Write ['draft']" in words


@pytest.mark.parametrize("name", ["", "  ", None, 5, ["approve"], "_approve", "__init__"])
def test_action_name_that_no_call_could_use_is_refused(name: Any) -> None:
    """
    An empty, blank, private or non-text action name is refused.
    """
    words = refused(Transition, name, ["draft"], "approved")

    assert "action_name" in words


@pytest.mark.parametrize(
    ("keyword", "meant"),
    [
        ("condition", "conditions"),
        ("permision", "permissions"),
        ("side_effect", "side_effects"),
        ("callback", "callbacks"),
        ("failure_callback", "failure_callbacks"),
        ("fail_state", "failed_state"),
        ("next_transitions", "next_transition"),
        ("lable", "label"),
        ("refusal_message", "refusal_messages"),
        ("prepares", "prepare"),
        ("events", "event"),
        ("locks", "lock"),
    ],
)
@pytest.mark.parametrize(
    "build", [lambda **slots: Transition("go", ["a"], "b", **slots), lambda **slots: Action("go", ["a"], **slots)]
)
def test_misspelled_keyword_is_refused_with_the_nearest(build: Any, keyword: str, meant: str) -> None:
    """
    A keyword that nothing reads is refused, naming the one that was meant.
    """
    words = refused(build, **{keyword: []})

    assert f"unknown keyword {keyword!r}" in words
    assert f"{meant!r}" in words
    assert words.startswith("django_logic.")


def test_busy_state_of_a_synchronous_transition_is_refused() -> None:
    """
    Only a background transition may write a busy state, together with the row that will finish it.
    """
    words = refused(Transition, "approve", ["draft"], "approved", in_progress_state="approving")

    assert "in_progress_state" in words
    assert "BackgroundTransition" in words


@pytest.mark.parametrize("lock", ["rows", "none", "", True, 5])
def test_unknown_lock_is_refused(lock: Any) -> None:
    """
    A lock is row, nowait or cache; a move can't be made without one.
    """
    words = refused(Transition, "approve", ["draft"], "approved", lock=lock)

    assert "lock must be one of row, nowait, cache" in words
    assert repr(lock) in words


@pytest.mark.parametrize("following", ["", 5, ["ship"], passes])
def test_next_transition_that_is_no_name_is_refused(following: Any) -> None:
    """
    ``next_transition`` takes the name of one action.
    """
    words = refused(Transition, "approve", ["draft"], "approved", next_transition=following)

    assert "next_transition" in words


@pytest.mark.parametrize(
    "states",
    [
        {"sources": [["draft"]], "target": "approved"},
        {"sources": ["draft"], "target": ["approved"]},
        {"sources": ["draft"], "target": {"approved"}},
        {"sources": ["draft"], "target": passes},
        {"sources": [passes], "target": "approved"},
        {"sources": ["draft"], "target": "approved", "failed_state": ["broken"]},
        {"sources": ["draft"], "target": 1.5},
    ],
)
def test_state_of_a_wrong_type_is_refused(states: dict[str, Any]) -> None:
    """
    A state is text, a whole number or None; anything else is refused where it was written.
    """
    words = refused(Transition, "approve", **states)

    assert words.startswith("django_logic.Transition('approve')")
    assert "state" in words or "target" in words
