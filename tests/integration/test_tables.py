"""
Prove what a model gets from a table of its edges, and which tables are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.test.utils import isolate_apps

from django_logic import ProcessManager, TransitionsMixin
from tests.app.models import (
    Sale,
)


@pytest.fixture
def sandbox() -> Iterator[None]:
    """
    Declare models that nobody else sees, and forget what they bound.
    """
    before = list(ProcessManager.bindings)
    with isolate_apps("tests.app"):
        yield
    ProcessManager.bindings[:] = before


def table_model(**body: Any) -> type[models.Model]:
    """
    Declare a model with the mixin.
    """
    return type("Tale", (TransitionsMixin, models.Model), {"__module__": "tests.app.models", **body})


@pytest.mark.parametrize("base", [TransitionsMixin, models.Model])
def test_model_declared_with_a_table_binds_itself(sandbox: None, base: type[Any]) -> None:
    """
    No AppConfig is needed, and the mixin may come from an abstract parent.
    """
    parent = type(
        "Parent",
        (TransitionsMixin, models.Model),
        {"__module__": "tests.app.models", "Meta": type("Meta", (), {"abstract": True, "app_label": "app"})},
    )
    bases = (TransitionsMixin, models.Model) if base is TransitionsMixin else (parent,)

    tale = type(
        "Tale",
        bases,
        {
            "__module__": "tests.app.models",
            "status": models.CharField(max_length=9, default="a"),
            "TRANSITIONS": {"a": {"b"}, "b": ()},
        },
    )

    assert tale().process.get_available_actions() == ["to_b"]
    assert [entry.state_field for entry in ProcessManager.bindings_of(tale)] == ["status"]


def test_table_may_move_another_field(sandbox: None) -> None:
    """
    ``state_field`` names the column.
    """
    tale = table_model(state_field="stage", stage=models.IntegerField(default=0), TRANSITIONS={0: {1}})

    assert tale().process.field_name == "stage"
    assert tale().can_transition_to(1) is True


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"TRANSITIONS": {"a": "b"}}, "targets of 'a' must be a set or list"),
        ({"TRANSITIONS": [("a", "b")]}, "maps each source to its targets"),
        ({"TRANSITIONS": {"a": [["b"]]}}, "TRANSITIONS"),
        ({"TRANSITIONS": {"a": {"b"}}, "state_field": "stat"}, "Did you mean 'state' or 'status'?"),
        ({"TRANSITION": {"a": {"b"}}}, "'TRANSITIONS'"),
    ],
)
def test_model_with_a_wrong_table_is_refused(sandbox: None, body: dict[str, Any], told: str) -> None:
    """
    A table of another shape, under another name, for another field, or none at all is refused as the class is made.
    """
    fields = {"status": models.CharField(max_length=9), "state": models.CharField(max_length=9)}

    with pytest.raises(ImproperlyConfigured) as caught:
        table_model(**fields, **body)

    assert told in str(caught.value)
    assert "Tale" in str(caught.value)


def test_child_may_have_a_table_of_its_own(sandbox: None) -> None:
    """
    A child without a table shares its parent's process; with one it follows its own.
    """
    parent = table_model(status=models.CharField(max_length=9, default="a"), TRANSITIONS={"a": {"b"}})
    same = type("Same", (parent,), {"__module__": "tests.app.models"})
    other = type("Other", (parent,), {"__module__": "tests.app.models", "TRANSITIONS": {"a": {"c"}}})

    assert parent().process.get_available_actions() == same().process.get_available_actions() == ["to_b"]
    assert other().process.get_available_actions() == ["to_c"]


@pytest.mark.django_db
def test_table_model_has_the_four_names_of_the_contract() -> None:
    """
    ``transition_to``, ``can_transition_to``, ``history`` and ``process`` come with the mixin.
    """
    sale = Sale.objects.create()

    moved = sale.transition_to("placed", actor="shop", reason="checkout")

    assert moved is True
    assert (
        sale.can_transition_to("processing"),
        sale.can_transition_to("placed"),
        sale.can_transition_to("draft"),
    ) == (True, False, False)
    assert [(change.from_state, change.to_state, change.actor_label, change.reason) for change in sale.history] == [
        ("draft", "placed", "shop", "checkout")
    ]
    assert sale.process.to_processing() is True
