"""
Prove how a process gets onto a model, and what a model gets from a table.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_logic import Process, ProcessManager, Transition
from tests.app.models import (
    Base,
    FromAbstract,
    Order,
    Ticket,
)
from tests.app.process import DocumentProcess
from tests.flows import Bind, declare

GO = Transition("go", ["new"], "done")

PUBLIC = {
    "django_logic": [
        "Process",
        "ProcessManager",
        "Transition",
        "Action",
        "TransitionsMixin",
        "StateConstraint",
        "TransitionConstraint",
        "refusal_message",
    ],
    "django_logic.operations": ["RenameState"],
    "django_logic.models": ["StatusChange", "AuditEntry"],
    "django_logic.conf": ["enable_sync", "sync_execution"],
    "django_logic.exceptions": [
        "DjangoLogicException",
        "TransitionNotAllowed",
        "InvalidTransition",
        "UnknownAction",
        "TransitionForbidden",
        "TransitionTemporarilyUnavailable",
        "AlreadyInProgress",
        "Refusal",
        "RefusalReason",
    ],
}


def refused(*arguments: Any, **keywords: Any) -> str:
    """
    Return the words with which a binding is refused; nothing is bound.
    """
    before = list(ProcessManager.bindings)
    with pytest.raises(ImproperlyConfigured) as caught:
        ProcessManager.bind_model_process(*arguments, **keywords)

    assert ProcessManager.bindings == before
    return str(caught.value)


def test_public_names_are_where_the_contract_says() -> None:
    """
    Projects import from these places.
    """
    for module, public in PUBLIC.items():
        assert [name for name in public if not hasattr(import_module(module), name)] == []


def test_same_binding_again_changes_nothing(bind: Bind) -> None:
    """
    ``ready()`` may run twice.
    """
    flow = bind(declare(GO))
    before = list(ProcessManager.bindings)

    ProcessManager.bind_model_process(Ticket, flow, "state")

    assert ProcessManager.bindings == before
    assert isinstance(Ticket().flow, flow)


def test_state_field_is_called_state_unless_named() -> None:
    """
    The third argument may be left out, as in the reference.
    """
    flow = declare(GO)

    ProcessManager.bind_model_process(Ticket, flow)

    assert Ticket().flow.field_name == "state"
    ProcessManager.unbind_model_process(Ticket, flow)


@pytest.mark.parametrize(
    ("model", "process", "field", "told"),
    [
        (Ticket, declare(GO), "stat", "Did you mean 'state'?"),
        (Ticket, declare(GO), "", "has no field ''"),
        (Order, declare(GO), "items", "has no column"),
        (Ticket, object, "state", "takes a Process class"),
        (Ticket, declare(GO)(instance=Ticket()), "state", "takes a Process class"),
        ("Ticket", declare(GO), "state", "only a concrete model"),
        (Process, declare(GO), "state", "only a concrete model"),
        (Ticket(), declare(GO), "state", "only a concrete model"),
        (FromAbstract.__bases__[0], declare(GO), "state", "only a concrete model"),
        (Ticket, declare(GO, name="process"), "state", "is taken by tests.app.process.DocumentProcess"),
        (Ticket, declare(GO, name="note"), "state", "is taken by Ticket.note"),
        (Ticket, declare(GO, name="objects"), "state", "is taken by Ticket.objects"),
        (Ticket, declare(GO, name="save"), "state", "is taken by Model.save"),
        (Ticket, declare(GO, name="pk"), "state", "is taken by Model.pk"),
        (Order, declare(GO, name="items"), "status", "is taken by Order.items"),
        (Ticket, declare(Transition("go", ["new"], "x" * 256)), "state", "longer than 255"),
    ],
)
def test_binding_that_can_not_work_is_refused(model: Any, process: Any, field: str, told: str) -> None:
    """
    An unknown field, a wrong model or class, and a name that would hide something are refused by name.
    """
    assert told in refused(model, process, field)


def test_unknown_field_is_refused_with_all_there_are() -> None:
    """
    The refusal says which process, which model, and which fields could be meant.
    """
    words = refused(Ticket, declare(GO), state_field="status")

    assert words.startswith("tests.flows.FlowProcess on app.Ticket: the model has no field 'status'.")
    assert "Its fields: id, state, note." in words


def test_second_process_of_one_name_is_refused(bind: Bind) -> None:
    """
    Another class, or another field, under a name that is bound is a conflict; the first binding stays.
    """
    flow = bind(declare(GO))

    other_class, other_field = refused(Ticket, declare(GO), "state"), refused(Ticket, flow, "note")

    assert "Give the process another process_name" in other_class
    assert "Give the process another process_name" in other_field
    assert isinstance(Ticket().flow, flow)


def test_misspelled_next_transition_is_refused_with_the_nearest() -> None:
    """
    A follow-up that nothing declares would be skipped for ever.
    """
    flow = declare(Transition("go", ["new"], "done", next_transition="shp"), Transition("ship", ["done"], "sent"))

    words = refused(Ticket, flow, "state")

    assert "'shp'" in words
    assert "'ship'" in words


def test_unbinding_takes_back_what_matches() -> None:
    """
    One of two processes can be unbound; an unknown one, or the same again, changes nothing.
    """
    first, second = declare(GO), declare(GO, name="second")
    ProcessManager.bind_model_process(Ticket, first, "state")
    ProcessManager.bind_model_process(Ticket, second, "note")

    ProcessManager.unbind_model_process(Ticket, declare(GO))
    ProcessManager.unbind_model_process(Ticket, first)
    ProcessManager.unbind_model_process(Ticket, first)

    assert not hasattr(Ticket(), "flow")
    assert isinstance(Ticket().second, second)
    ProcessManager.unbind_model_process(Ticket, second, "note")
    assert not hasattr(Ticket(), "second")
    assert isinstance(Ticket().process, DocumentProcess)


def test_accessor_can_not_be_assigned() -> None:
    """
    Assigning to the accessor is a mistake that is told.
    """
    ticket = Ticket()

    with pytest.raises(AttributeError, match="can't be set"):
        ticket.process = DocumentProcess(instance=ticket)

    assert isinstance(ticket.process, DocumentProcess)


def test_hook_that_can_not_take_the_instance_is_told_of(
    bind: Bind, caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    """
    A hook without a first parameter by name is a warning at bind, and a refusal under STRICT_HOOK_SIGNATURES.
    """

    def starred(*arguments: Any, **keywords: Any) -> None: ...

    def empty() -> None: ...

    class Uninspectable:
        __signature__ = "none"

        def __call__(self, instance: Any, **keywords: Any) -> None: ...

    flow = declare(
        Transition("go", ["new"], "done", side_effects=[starred, empty, Uninspectable(), lambda order, **kw: None])
    )

    with caplog.at_level(logging.WARNING, "django-logic"):
        bind(flow)

    told = [record.getMessage() for record in caplog.records]
    assert [("starred" in line, "empty" in line) for line in told] == [(True, False), (False, True)]
    settings.DJANGO_LOGIC = {"STRICT_HOOK_SIGNATURES": True}
    assert "tests.flows.FlowProcess.go.side_effects: starred" in refused(Base, flow, "state")


@pytest.mark.parametrize("backend", ["locmem.LocMemCache", "dummy.DummyCache"])
@pytest.mark.parametrize("place", ["transition", "process", "project"])
def test_cache_lock_on_a_cache_of_one_process_is_refused(settings: Any, backend: str, place: str) -> None:
    """
    In production ``lock="cache"``, wherever it is said, needs a cache all processes share.
    """
    settings.CACHES = {"default": {"BACKEND": f"django.core.cache.backends.{backend}"}}
    settings.DEBUG = False
    settings.DJANGO_LOGIC = {"LOCK": "cache"} if place == "project" else {}
    lock = {"lock": "cache"}
    flow = declare(
        Transition("go", ["new"], "done", **(lock if place == "transition" else {})),
        **(lock if place == "process" else {}),
    )

    words = refused(Ticket, flow, "state")

    assert backend in words
    assert "lock='row'" in words


def test_cache_lock_on_a_cache_of_one_process_is_for_development(settings: Any, bind: Bind) -> None:
    """
    With DEBUG a single process may do, and a shared cache always does.
    """
    flow = declare(Transition("go", ["new"], "done", lock="cache"))
    settings.DEBUG = True
    bind(flow)
    settings.DEBUG = False
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": "/unused"}
    }

    bind(flow, Base)

    assert isinstance(Base().flow, flow)
