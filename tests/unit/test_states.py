"""
Prove what a state is, however it was written.
"""

from __future__ import annotations

import enum
from typing import Any

import pytest
from django.db import models

from django_logic.states import as_text, nearest, plain, plain_all, plain_table


class Status(models.TextChoices):
    """
    Name two states.
    """

    DRAFT = "draft"
    PLACED = "placed"


class Plain(enum.Enum):
    """
    Name a state without being one.
    """

    DRAFT = "draft"


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        (Status.DRAFT, "draft"),
        (Plain.DRAFT, "draft"),
        (models.IntegerChoices("Grade", "GOLD").GOLD, 1),
        ("draft", "draft"),
        ("", ""),
        (0, 0),
        (None, None),
    ],
)
def test_member_and_value_are_the_same_state(written: Any, stored: Any) -> None:
    """
    A state is the plain value in the column, whatever enum it was written with.
    """
    state = plain(written)

    assert (state, type(state)) == (stored, type(stored))


def test_states_keep_their_order_and_appear_once() -> None:
    """
    Members and values of one state are one state.
    """
    assert plain_all([Status.PLACED, "draft", Status.DRAFT]) == ("placed", "draft")


def test_table_of_members_equals_table_of_values() -> None:
    """
    A transition table means the same with members, values, sets, lists and tuples.
    """
    written = {Status.DRAFT: {Status.PLACED}, Status.PLACED: []}

    assert plain_table(written) == plain_table({"draft": ("placed",), "placed": set()})


@pytest.mark.parametrize(
    "table",
    [
        [("draft", "placed")],
        "draft",
        None,
        {"draft": "placed"},
        {"draft": Status.PLACED},
        {"draft": 1},
        {"draft": None},
    ],
)
def test_table_of_another_shape_is_refused(table: Any) -> None:
    """
    A table maps each source to a collection of targets; a lone text would be read letter by letter.
    """
    with pytest.raises(TypeError, match="found"):
        plain_table(table)


@pytest.mark.parametrize(("state", "text"), [(0, "0"), ("", ""), (None, None), (Status.DRAFT, "draft")])
def test_state_is_told_as_text(state: Any, text: str | None) -> None:
    """
    History keeps text: 0 and emptiness included, nothing only for a null column.
    """
    assert as_text(state) == text


def test_nearest_words_are_offered_and_strange_ones_are_not() -> None:
    """
    A slip of the pen gets a hint, a word from elsewhere gets none.
    """
    assert nearest("aprove", ["approve", "cancel"]) == " Did you mean 'approve'?"
    assert nearest("nonsense", ["approve", "cancel"]) == ""
    assert nearest(1, [10, 11]) == " Did you mean '11' or '10'?"
