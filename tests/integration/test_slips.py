"""
Prove that a slip of the pen is told where it was made, with what to write instead.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from django_logic import Action, ProcessManager, Transition
from django_logic.exceptions import TransitionNotAllowed, UnknownAction
from django_logic.models import StatusChange
from tests.app.models import Sale, Ticket
from tests.flows import Bind, declare, records, stored

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "target", [None, "", 0, "NEW", "new ", "\x00", "x" * 10_000, 5, True, ("done",), ["done"], {}, object()]
)
def test_target_that_is_no_state_is_refused(target: Any) -> None:
    """
    Whatever is asked for by target, a state that is none is a refusal by name, never a database error.
    """
    sale = Sale.objects.create()

    with pytest.raises((TransitionNotAllowed, TypeError)) as caught:
        sale.transition_to(target)

    assert "Sale" in str(caught.value)
    assert sale.can_transition_to(target) is False
    assert (stored(sale, "status"), sale.status, records()) == ("draft", "draft", (0, 0))


@pytest.mark.parametrize("name", ["go ", "Go", "gö", "", "go\x00", "x" * 10_000, "for", "go.now", "0"])
def test_action_name_that_is_none_is_refused(bind: Bind, ticket: Ticket, name: str) -> None:
    """
    ``getattr`` with a name from outside is safe: refused by name, nothing asked of the database.
    """
    bind(declare(Transition("go", ["new"], "done")))

    with pytest.raises(UnknownAction):
        getattr(ticket.flow, name)

    assert [reason.code for reason in ticket.flow.why_not(name)] == ["unknown_action"]
    assert records() == (0, 0)


def test_metadata_that_is_no_json_is_refused_before_the_write(bind: Bind, ticket: Ticket) -> None:
    """
    What a hook puts into the metadata has to be storable; if not, the call fails as a whole.
    """

    def describe(instance: Ticket, context: dict[str, Any]) -> None:
        Ticket.objects.filter(pk=instance.pk).update(note="half")
        context["metadata"] = {"parcel": object()}

    bind(declare(Transition("go", ["new"], "done", side_effects=[describe])))

    with pytest.raises(TypeError), transaction.atomic():
        ticket.flow.go()

    assert (stored(ticket), stored(ticket, "note"), records()) == ("new", "", (0, 0))


@pytest.mark.parametrize(
    ("slip", "found", "mend"),
    [
        (lambda: Transition("go", ["new"], "done", condition=[]), "condition", "conditions"),
        (lambda: Action("go", ["new"], permision=[]), "permision", "permissions"),
        (lambda: Transition("go", "new", "done"), "'new'", "['new']"),
        (lambda: Transition("go", ["new"], "done", lock="rows"), "'rows'", "row"),
        (lambda: declare(nested_process=[]), "nested_process", "nested_processes"),
        (lambda: declare(duplicates="refused"), "'refused'", "refuse"),
        (lambda: ProcessManager.bind_model_process(Ticket, declare(), "stat"), "'stat'", "'state'"),
        (
            lambda: ProcessManager.bind_model_process(
                Ticket, declare(Transition("go", ["new"], "done", next_transition="goo")), "state"
            ),
            "'goo'",
            "'go'",
        ),
    ],
)
def test_slip_of_the_pen_is_told_with_its_mend(slip: Any, found: str, mend: str) -> None:
    """
    Wherever a declaration is mistyped: what was wrong, what was found and what to write instead.
    """
    with pytest.raises(ImproperlyConfigured) as caught:
        slip()

    words = str(caught.value)
    assert found in words
    assert mend in words
    assert words.startswith(("django_logic.", "tests.flows.FlowProcess"))


@pytest.mark.parametrize(
    ("hook", "keywords"),
    [
        (lambda: None, {}),
        (lambda instance, weight: None, {}),
        (lambda instance, weight, **kw: None, {}),
    ],
    ids=["takes nothing", "asks for a keyword", "asks for a keyword beside others"],
)
def test_hook_that_can_not_be_called_fails_the_call_whole(bind: Bind, ticket: Ticket, hook: Any, keywords: Any) -> None:
    """
    A hook whose signature does not fit the call is a TypeError for the caller; nothing is written.
    """
    bind(declare(Transition("go", ["new"], "done", side_effects=[hook])))

    with pytest.raises(TypeError), transaction.atomic():
        ticket.flow.go(**keywords)

    assert (stored(ticket), ticket.state, records()) == ("new", "new", (0, 0))


def test_sequence_of_bad_calls_leaves_the_object_usable(bind: Bind, ticket: Ticket, clerk: Any) -> None:
    """
    After every kind of mistake the next right call works and is the first record.
    """
    bind(declare(Transition("go", ["new"], "done"), Transition("early", ["other"], "done")))
    mistakes = [
        lambda: ticket.flow.go(clerk),
        lambda: ticket.flow.go(request=1),
        lambda: ticket.flow.go(actor=5),
        lambda: ticket.flow.go(expected_version="1"),
        lambda: ticket.flow.go(expected_version=99),
        lambda: ticket.flow.early(),
        lambda: ticket.flow.nonsense(),
        lambda: ticket.flow.transition_to("nowhere"),
        lambda: ticket.flow.transition_to(),
        lambda: setattr(ticket, "flow", None),
    ]

    for mistake in mistakes:
        with pytest.raises((TypeError, AttributeError, TransitionNotAllowed)):
            mistake()

    assert ticket.flow.go(user=clerk) is True
    assert list(StatusChange.objects.values_list("sequence", "actor_label")) == [(1, "clerk")]


@pytest.mark.parametrize("slot", ["conditions", "permissions", "prepare", "side_effects"])
def test_hook_that_answers_with_a_coroutine_fails_the_call_whole(
    bind: Bind, ticket: Ticket, clerk: Any, slot: str
) -> None:
    """
    A decorator may hide that a hook is async; its unawaited answer is neither a yes nor work done.
    """

    async def later(instance: Any, **keywords: Any) -> bool:
        return False

    def hidden(instance: Any, *user: Any, **keywords: Any) -> Any:
        return later(instance)

    bind(declare(Transition("go", ["new"], "done", **{slot: [hidden]})))

    with pytest.raises(TypeError, match="hidden"), transaction.atomic():
        ticket.flow.go(user=clerk)

    assert (stored(ticket), ticket.state, records()) == ("new", "new", (0, 0))
