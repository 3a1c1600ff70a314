"""
Test what a declaration accepts, refuses with reasons, and tells others.
"""

from __future__ import annotations

import enum
import os
import subprocess
import sys
from typing import Any

import pytest
from django.apps.registry import Apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, models

from django_logic.constraints import StateConstraint, TransitionConstraint
from django_logic.constraints.transition import check_all
from django_logic.operations import RenameState
from tests.constraints_app.models import TABLE, Letter, Order, Parcel, Stage, Status


class Mixed(enum.Enum):
    """
    Hold values no column stores together.
    """

    TEXT = "a"
    NUMBER = 1


def moves(**options: Any) -> TransitionConstraint:
    """
    Return a constraint.
    """
    return TransitionConstraint(**{"field": "status", "table": TABLE, "name": "moves", **options})


def test_constraint_tells_what_it_declares() -> None:
    """
    Field, edges, states and initial states are plain values.
    """
    constraint = moves(initial=Status.DRAFT)

    assert constraint.field == "status"
    assert constraint.edges == {
        ("draft", "placed"),
        ("draft", "cancelled"),
        ("placed", "paid"),
        ("placed", "cancelled"),
    }
    assert constraint.states == ("cancelled", "draft", "paid", "placed")
    assert constraint.initial == {"draft"}
    assert {type(state) for state in constraint.states} == {str}
    assert moves().initial is None


@pytest.mark.parametrize(
    "table",
    [
        {Status.PLACED: [Status.CANCELLED, Status.PAID], Status.DRAFT: [Status.CANCELLED, Status.PLACED]},
        {"draft": ("placed", "cancelled"), "placed": ("paid", "cancelled"), "paid": (), "cancelled": []},
        {Status.DRAFT: {"placed": 1, "cancelled": 2}, "placed": {Status.PAID, "cancelled"}},
    ],
)
def test_equal_tables_make_equal_constraints(table: Any) -> None:
    """
    Order and spelling do not count, for equality nor for the hash, and a copy is equal.
    """
    constraint = moves(table=table)

    assert constraint == moves()
    assert hash(constraint) == hash(moves())
    assert constraint.clone() == constraint
    assert len({constraint, moves(), constraint.clone()}) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"table": {"draft": ["placed"]}},
        {"initial": "draft"},
        {"name": "others"},
        {"field": "stage"},
        {"violation_error_message": "No."},
        {"violation_error_code": "no"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_other_declarations_make_other_constraints(other: dict[str, Any]) -> None:
    """
    Each part of a declaration counts, and survives a copy.
    """
    assert moves(**other) != moves()
    assert moves(**other).clone() == moves(**other)


def test_constraint_equals_nothing_of_another_kind() -> None:
    """
    Another kind of constraint is another constraint, and the text of one names what it is.
    """
    assert moves() != StateConstraint(field="status", states=Status, name="moves")
    assert "field='status' name='moves'" in repr(moves())


def test_state_constraint_with_none_takes_a_missing_state() -> None:
    """
    None among the states lets NULL in by name.
    """
    constraint = StateConstraint(field="status", states=["b", None, "a"], name="states")

    assert constraint == StateConstraint(field="status", states=[None, "a", "b"], name="states")
    assert "isnull" in repr(constraint)


def test_children_of_an_abstract_model_have_names_of_their_own() -> None:
    """
    The placeholders Django knows for names are filled in.
    """
    names = {model._meta.constraints[0].name for model in (Letter, Parcel)}

    assert len(names) == 2
    assert all(name.startswith("constraints_app_") and "%" not in name for name in names)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"table": None}, "the table maps each state to the states it may move to; found None"),
        ({"table": "draft"}, "the table maps each state"),
        ({"table": {"draft", "placed"}}, "the table maps each state"),
        ({"table": ["ab", "cd"]}, "the table maps each state"),
        ({"table": {}}, "the table is empty"),
        ({"table": {"draft": "placed"}}, "the targets of 'draft' must be a set or list of states; found 'placed'"),
        ({"table": {"draft": Status.PLACED}}, "the targets of 'draft' must be a set or list"),
        ({"table": {"draft": None}}, "the targets of 'draft' must be a set or list of states; found None"),
        ({"table": {1: 2}}, "the targets of 1 must be a set or list of states; found 2"),
        ({"table": {"draft": [["placed"]]}}, "a state is text, a whole number or None; found"),
        ({"table": {"draft": [1.5]}}, r"found 1.5 \(float\)"),
        ({"table": {"draft": [b"placed"]}}, "a state is text"),
        ({"table": {"draft": [1]}}, "the states mix int and str"),
        ({"table": {Mixed.TEXT: [Mixed.NUMBER]}}, "the states mix int and str"),
        ({"table": {0: [True]}}, "the states mix bool and int"),
        ({"table": {"draft": ["a\0b"]}}, "no database stores the text"),
        ({"table": {"draft": ["\ud800"]}}, "no database stores the text"),
        ({"table": [("a", ["b"]), ("a", ["c"])]}, "the state 'a' has two rows"),
        ({"initial": "drat"}, r"the initial state 'drat' is not in the table.*Did you mean 'draft'"),
        ({"initial": []}, "initial is empty, so no row could be created"),
        ({"initial": ["draft", 1]}, "the states mix int and str"),
        ({"initial": [None]}, "the initial state None is not in the table"),
        ({"name": ""}, "name must be a name; found ''"),
        ({"name": None}, "name must be a name; found None"),
        ({"field": ""}, "field must be a name; found ''"),
        ({"field": None}, "field must be a name; found None"),
    ],
)
def test_wrong_transition_constraint_is_refused_with_its_reason(wrong: dict[str, Any], told: str) -> None:
    """
    A mistake raises where it is made, and says what was found.
    """
    with pytest.raises(ImproperlyConfigured, match=told) as caught:
        moves(**wrong)

    assert str(caught.value).startswith("TransitionConstraint")


@pytest.mark.parametrize("name", ['a"b', "a`b", "100%"])
def test_name_the_database_would_garble_is_refused_when_migrated(name: str) -> None:
    """
    Quotes and percent signs, which Django itself does not escape in names, are refused.
    """

    class Editor:
        """
        Hold what a schema editor holds.
        """

    editor: Any = Editor()
    editor.connection, editor.deferred_sql = connection, []
    with pytest.raises(ImproperlyConfigured, match="can't be used in a migration"):
        moves(name=name).create_sql(Order, editor)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"states": "draft"}, "states must be a set or list of states; found 'draft'"),
        ({"states": Status.DRAFT}, "states must be a set or list"),
        ({"states": []}, "states is empty"),
        ({"states": [None]}, "states is empty"),
        ({"states": [1, "a"]}, "the states mix int and str"),
        ({"states": None}, "states must be a set or list of states; found None"),
        ({"name": ""}, "name must be a name"),
        ({"field": 3}, "field must be a name; found 3"),
    ],
)
def test_wrong_state_constraint_is_refused_with_its_reason(wrong: dict[str, Any], told: str) -> None:
    """
    A mistake raises where it is made, and says what was found.
    """
    with pytest.raises(ImproperlyConfigured, match=told) as caught:
        StateConstraint(**{"field": "status", "states": Status, "name": "states", **wrong})

    assert str(caught.value).startswith("StateConstraint")


@pytest.mark.parametrize(
    "states",
    [Status, list(Status), Status.values, set(Status.values), [Status.PAID, "draft", "placed", "cancelled", "draft"]],
)
def test_state_constraint_is_a_plain_check_constraint(states: Any) -> None:
    """
    However the states are given, the result is Django's own class and equal.
    """
    constraint = StateConstraint(field="status", states=states, name="states")

    assert type(constraint) is models.CheckConstraint
    assert constraint == StateConstraint(field="status", states=Status, name="states")
    assert constraint.clone() == constraint


def test_state_constraint_passes_options_on() -> None:
    """
    Django's own options of a check constraint are taken.
    """
    constraint = StateConstraint(field="stage", states=Stage, name="states", violation_error_message="No.")

    assert constraint.violation_error_message == "No."


def declare(constraint: Any, **attributes: Any) -> Any:
    """
    Declare a model with a constraint in an app of its own.
    """
    meta = type("Meta", (), {"app_label": "yard", "apps": Apps(), "constraints": [constraint]})
    body = {"status": models.CharField(max_length=9, default="draft"), **attributes}
    return type("Order", (models.Model,), {**body, "Meta": meta, "__module__": __name__})


def problems(model: Any) -> list[tuple[str, str]]:
    """
    Return what the constraints of a model complain about.
    """
    found = [problem for entry in model._meta.constraints for problem in entry.check(model, connection)]
    return [(str(problem.id), problem.msg) for problem in found]


def test_check_accepts_what_fits() -> None:
    """
    A constraint on a column of its own model is fine.
    """
    assert problems(declare(moves(initial="draft"))) == []


def test_check_reports_an_unknown_field() -> None:
    """
    A misspelt field is Django's own error for constraints.
    """
    found = problems(declare(moves(field="stauts")))

    assert [name for name, _told in found] == ["models.E012"]
    assert "stauts" in found[0][1]


def test_check_reports_a_field_of_the_parent() -> None:
    """
    A column in the parent's table is Django's own error for constraints.
    """
    meta = type("Meta", (), {"app_label": "yard", "apps": Apps(), "constraints": [moves()]})
    child = type("Child", (Order,), {"Meta": meta, "__module__": __name__})

    assert [name for name, _told in problems(child)] == ["models.E016"]


def test_check_reports_states_the_column_can_not_hold() -> None:
    """
    Words on a column of numbers are an error.
    """
    found = problems(declare(moves(), status=models.IntegerField()))

    assert [name for name, _told in found] == ["django_logic.E006"]
    assert "can't store the state 'cancelled'" in found[0][1]


def test_check_warns_of_a_default_that_is_no_initial_state() -> None:
    """
    A default in which no row could be created is a warning.
    """
    found = problems(declare(moves(initial="placed")))

    assert [name for name, _told in found] == ["django_logic.W007"]
    assert "defaults to 'draft'" in found[0][1]


@pytest.mark.django_db
def test_check_command_asks_the_constraints() -> None:
    """
    Django's own check of a model, run with a database, reports the constraint's problems.
    """
    model = declare(moves(field="stauts"))
    if hasattr(models.BaseConstraint, "check") or hasattr(models.BaseConstraint, "_check"):
        found = model.check(databases=["default"])
    else:
        config: Any = type("Config", (), {"get_models": staticmethod(lambda: [model])})
        found = check_all(app_configs=[config], databases=["default"])

    assert [problem.id for problem in found] == ["models.E012"]


def test_modules_import_without_settings() -> None:
    """
    Constraints and operations are declared in places that Django loads before it is set up.
    """
    program = (
        "import django_logic.constraints, django_logic.operations\n"
        "from django_logic.constraints import StateConstraint, TransitionConstraint\n"
        "TransitionConstraint(field='status', table={'a': ['b']}, name='moves')\n"
        "StateConstraint(field='status', states=['a'], name='states')\n"
        "from django.conf import settings\n"
        "assert not settings.configured\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("order", "status", "a", "a"), "both names are 'a'"),
        (("order", "status", 1.5, "a"), "a state is text, a whole number or None"),
        (("order", "status", "a", 1), "the states mix int and str"),
        (("order", "status", "a", "b\0"), "no database stores the text"),
    ],
)
def test_wrong_rename_is_refused_with_its_reason(arguments: Any, told: str) -> None:
    """
    A mistake raises where it is made.
    """
    with pytest.raises(ImproperlyConfigured, match=told):
        RenameState(*arguments)
