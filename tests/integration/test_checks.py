"""
Prove what ``manage.py check`` finds between settings, processes and models.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core import checks
from django.db import models
from django.test.utils import isolate_apps

from django_logic import ProcessManager, Transition, TransitionConstraint
from tests.flows import declare

STEPS = (Transition("go", ["new"], "done", failed_state="broken"), Transition("back", ["done", "broken"], "new"))


EDGES = {"new": ["done", "broken"], "done": ["new"], "broken": ["new"]}


@pytest.fixture(autouse=True)
def sandbox() -> Iterator[None]:
    """
    Declare models that nobody else sees, and forget what they bound.
    """
    before = list(ProcessManager.bindings)
    with isolate_apps("tests.app"):
        ProcessManager.bindings[:] = []
        yield
    ProcessManager.bindings[:] = before


def model(*, constraints: Any = (), **fields: Any) -> Any:
    """
    Declare a model with these fields and constraints.
    """
    meta = type("Meta", (), {"app_label": "app", "constraints": list(constraints)})
    fields = fields or {"state": models.CharField(max_length=20)}
    return type("Tale", (models.Model,), {"__module__": __name__, "Meta": meta, **fields})


def found(*, only: str = "") -> list[checks.CheckMessage]:
    """
    Run the library's checks; leave out those with another id.
    """
    messages = checks.run_checks(tags=["django_logic"])
    return [message for message in messages if only in (message.id or "")]


def ids(messages: list[checks.CheckMessage]) -> list[str | None]:
    """
    Return the ids of messages.
    """
    return [message.id for message in messages]


def enforcing(table: Any = None, field: str = "state", **keywords: Any) -> TransitionConstraint:
    """
    Make a constraint.
    """
    return TransitionConstraint(field=field, table=table or EDGES, name="tale_moves", **keywords)


def test_sound_project_is_silent(settings: Any) -> None:
    """
    A process whose moves the database enforces, and known settings, give no message.
    """
    settings.DJANGO_LOGIC = {"LOCK": "row", "AUDIT": "all"}
    ProcessManager.bind_model_process(model(constraints=[enforcing()]), declare(*STEPS))

    assert found() == []


def test_unknown_setting_is_a_warning_with_the_nearest(settings: Any) -> None:
    """
    W004: a key that nothing reads, one message each.
    """
    settings.DJANGO_LOGIC = {"LOCKS": "row", "AUDITS": "all", "UNHEARD_OF": 1, 5: 6}

    warned = found()

    assert ids(warned) == ["django_logic.W004"] * 4
    assert all(message.level == checks.WARNING for message in warned)
    told = {message.msg.split("'")[1]: message.msg for message in warned if "'" in message.msg}
    assert "Did you mean 'LOCK'" in told["LOCKS"]
    assert "Did you mean 'AUDIT'?" in told["AUDITS"]
    assert "Did you mean" not in told["UNHEARD_OF"]


def test_hook_without_room_for_the_instance_is_a_warning() -> None:
    """
    W001: one message for each hook, by its dotted place, nested processes included.
    """

    def starred(*arguments: Any) -> bool:
        return True

    def empty() -> bool:
        return True

    nested = declare(Transition("inner", ["new"], "done", callbacks=[starred]))
    flow = declare(*STEPS, nested_processes=[nested], conditions=[empty], permissions=[lambda instance, user: True])
    ProcessManager.bind_model_process(model(), flow)

    warned = found(only="W001")

    assert [message.msg.split(" has no")[0] for message in warned] == [
        "tests.flows.FlowProcess.conditions: empty",
        "tests.flows.FlowProcess.inner.callbacks: starred",
    ]
    assert "def starred(instance, **kwargs)" in warned[1].msg


def test_permission_without_room_for_the_user_is_a_warning() -> None:
    """
    W001: a permission is asked with the instance and the user, so it needs a second parameter by place.
    """

    def no_user(order: Any, **keywords: Any) -> bool:
        return True

    def by_name(order: Any, *, user: Any) -> bool:
        return True

    def fine(order: Any, person: Any, **keywords: Any) -> bool:
        return True

    def starred(order: Any, *people: Any) -> bool:
        return True

    guarded = Transition("go", ["new"], "done", permissions=[no_user, by_name, fine, starred], conditions=[no_user])
    ProcessManager.bind_model_process(model(), declare(guarded))

    warned = found(only="W001")

    assert [message.msg.split(" ")[1] for message in warned] == ["no_user", "by_name"]
    assert all("user" in message.msg for message in warned)


@pytest.mark.parametrize(
    ("field", "told"),
    [
        (
            models.CharField(max_length=20, choices=[("new", "New"), ("don", "Done"), ("broken", "Broken")]),
            "'done' is not among the field's choices. Did you mean 'don'?",
        ),
        (
            models.CharField(max_length=20, choices=[("Group", [("new", "New"), ("broken", "Broken")])]),
            "'done' is not among the field's choices.",
        ),
        (models.CharField(max_length=5), "'broken' is longer than the column's 5 characters."),
        (models.IntegerField(), "'new' can't be stored in a IntegerField."),
        (models.BooleanField(), "'new' can't be stored in a BooleanField."),
        (models.DateField(), "'new' can't be stored in a DateField."),
    ],
)
def test_state_the_column_can_not_hold_is_an_error(field: Any, told: str) -> None:
    """
    E004: outside the choices, too long, or of another type.
    """
    ProcessManager.bind_model_process(model(state=field), declare(*STEPS))

    errors = found(only="E004")

    assert any(told in message.msg for message in errors), [message.msg for message in errors]
    assert all(message.level == checks.ERROR for message in errors)
    assert all(message.msg.startswith("tests.flows.FlowProcess: the state ") for message in errors)


@pytest.mark.parametrize(
    ("field", "states"),
    [
        (models.CharField(max_length=4), ("", "done")),
        (models.IntegerField(choices=[(0, "None"), (1, "Some")]), (0, 1)),
        (models.CharField(max_length=4, null=True), (None, "done")),
        (models.TextField(), ("new", "x" * 200)),
        (models.CharField(max_length=9, choices=[("a", "A"), ("b", "B")]), ("a", "b")),
    ],
)
def test_state_the_column_can_hold_is_fine(field: Any, states: tuple[Any, Any]) -> None:
    """
    0, the empty text, a null column and text of any length pass.
    """
    ProcessManager.bind_model_process(model(state=field), declare(Transition("go", [states[0]], states[1])))

    assert found(only="E004") == []


@pytest.mark.parametrize("state", ["1", None])
def test_state_of_a_similar_type_is_an_error(state: Any) -> None:
    """
    What a column would quietly turn into another value is no state of it.
    """
    ProcessManager.bind_model_process(model(state=models.IntegerField()), declare(Transition("go", [0], state)))

    assert ids(found(only="E004")) == ["django_logic.E004"]
