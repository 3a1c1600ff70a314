"""
Prove that ``manage.py check`` compares what the database enforces with what is declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core import checks
from django.db import models
from django.test.utils import isolate_apps

from django_logic import Action, Process, ProcessManager, Transition, TransitionConstraint
from tests.flows import Bind, declare

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


def test_moves_the_database_does_not_enforce_are_a_warning_with_the_entry_to_paste() -> None:
    """
    W005: the hint is source text that silences the warning.
    """
    flow = declare(*STEPS, Action("try", ["done"], failed_state="broken"))
    tale = model()
    ProcessManager.bind_model_process(tale, flow)

    (warned,) = found()

    assert (warned.id, warned.level, warned.obj) == ("django_logic.W005", checks.WARNING, tale)
    assert "app.Tale.state" in warned.msg
    pasted = str(warned.hint).split("Meta.constraints:\n")[1].rstrip().rstrip(",")
    entry = eval(pasted, {"TransitionConstraint": TransitionConstraint})  # noqa: S307 (our own text)
    assert entry.edges == flow(instance=tale()).tree.edges
    ProcessManager.bindings.clear()
    ProcessManager.bind_model_process(
        type(
            "Other",
            (models.Model,),
            {
                "__module__": __name__,
                "state": models.CharField(max_length=20),
                "Meta": type("Meta", (), {"app_label": "app", "constraints": [entry]}),
            },
        ),
        flow,
    )
    assert found() == []


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({**EDGES, "done": []}, "lacks 'done' → 'new'"),
        ({**EDGES, "done": ["new", "broken"]}, "allows 'done' → 'broken'"),
        ({**EDGES, "done": ["lost"], "lost": []}, "lacks 'done' → 'new'; allows 'done' → 'lost'"),
    ],
)
def test_moves_the_database_enforces_otherwise_are_an_error(table: Any, told: str) -> None:
    """
    E005: each edge that is missing or too much is named, with the entry to paste.
    """
    ProcessManager.bind_model_process(model(constraints=[enforcing(table)]), declare(*STEPS))

    (error,) = found()

    assert (error.id, error.level) == ("django_logic.E005", checks.ERROR)
    assert told in error.msg
    assert "'tale_moves'" in error.msg
    assert "TransitionConstraint(" in str(error.hint)


def test_constraint_of_another_field_does_not_count() -> None:
    """
    Each bound field needs an entry of its own.
    """
    fields = {"state": models.CharField(max_length=20), "stage": models.CharField(max_length=20)}
    ProcessManager.bind_model_process(model(constraints=[enforcing(field="stage")], **fields), declare(*STEPS))

    assert ids(found()) == ["django_logic.W005"]


def test_staying_put_needs_no_entry() -> None:
    """
    Writing the same state again always passes, so a self-transition is no edge.
    """
    flow = declare(*STEPS, Transition("touch", ["new"], "new"))
    ProcessManager.bind_model_process(model(constraints=[enforcing()]), flow)

    assert found() == []


def test_two_processes_of_one_column_are_enforced_together() -> None:
    """
    A column that two processes move has to allow the moves of both.
    """
    tale = model(constraints=[enforcing()])
    ProcessManager.bind_model_process(tale, declare(STEPS[0]))
    ProcessManager.bind_model_process(tale, declare(STEPS[1], name="returns"))

    assert found() == []


def test_proxy_and_child_are_checked_against_the_owner_of_the_column() -> None:
    """
    The constraint sits where the column is.
    """
    parent = model(constraints=[enforcing()])
    flow: type[Process] = declare(*STEPS)
    proxy = type(
        "Proxy", (parent,), {"__module__": __name__, "Meta": type("Meta", (), {"app_label": "app", "proxy": True})}
    )
    child = type("Child", (parent,), {"__module__": __name__, "Meta": type("Meta", (), {"app_label": "app"})})

    ProcessManager.bind_model_process(proxy, flow)
    ProcessManager.bind_model_process(child, flow)

    assert found() == []


def test_star_is_enforced_from_every_declared_state(bind: Bind) -> None:
    """
    ``"*"`` in a declaration and its written-out edges in the constraint are the same.
    """
    flow = declare(*STEPS, Transition("stop", "*", "stopped"))
    table = {**{source: [*ends, "stopped"] for source, ends in EDGES.items()}, "stopped": []}

    ProcessManager.bind_model_process(model(constraints=[enforcing(table)]), flow)

    assert found() == []
