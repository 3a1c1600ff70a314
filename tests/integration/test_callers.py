"""
Prove who is asked and recorded, what hooks get, and which calls are refused before anything is touched.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.utils.functional import SimpleLazyObject

from django_logic import Transition
from django_logic.exceptions import TransitionForbidden
from django_logic.models import StatusChange
from tests.app.models import Sale, Ticket
from tests.flows import Bind, declare, names, noting, records, stored

pytestmark = pytest.mark.django_db


#: Marks what depends on a real commit: callbacks, and the fast path outside any transaction.
commits = pytest.mark.django_db(transaction=True)


def nothing_happened(ticket: Ticket, log: list[Any]) -> bool:
    """
    Tell whether neither the database nor a hook knows of a call.
    """
    return stored(ticket) == ticket.state == "new" and records() == (0, 0) and log == []


@pytest.mark.parametrize("work", [False, True])
def test_positional_argument_is_refused_before_anything_is_touched(
    bind: Bind, ticket: Ticket, clerk: Any, work: bool
) -> None:
    """
    A user passed by position would be dropped, and with him every permission.
    """
    log: list[Any] = []
    hooks = [noting(log)] if work else []
    bind(declare(Transition("go", ["new"], "done", permissions=hooks, prepare=hooks, side_effects=hooks)))

    with pytest.raises(TypeError, match="keywords only"):
        ticket.flow.go(clerk)
    with pytest.raises(TypeError):
        ticket.flow.transition_to("done", clerk)

    assert nothing_happened(ticket, log)


@pytest.mark.parametrize("keyword", ["request", "state", "exception", "context", "instance"])
@pytest.mark.parametrize("by", ["action", "target", "table"])
def test_keyword_of_the_engine_is_refused_before_anything_is_touched(
    bind: Bind, ticket: Ticket, keyword: str, by: str
) -> None:
    """
    Names that hooks get from the engine can't be a caller's, through no door.
    """
    log: list[Any] = []
    bind(declare(Transition("go", ["new"], "done", conditions=[noting(log)], prepare=[noting(log)])))
    sale = Sale.objects.create()
    doors = {
        "action": lambda **given: ticket.flow.go(**given),
        "target": lambda **given: ticket.flow.transition_to("done", **given),
        "table": lambda **given: sale.transition_to("placed", **given),
    }

    with pytest.raises(TypeError, match=rf"takes no {keyword}="):
        doors[by](**{keyword: 1})

    assert nothing_happened(ticket, log)
    assert stored(sale, "status") == "draft"


@pytest.mark.parametrize("version", ["0", True, 0.0])
def test_version_of_a_wrong_type_is_refused_before_anything_is_touched(
    bind: Bind, ticket: Ticket, version: Any
) -> None:
    """
    A version that could never match is a programming error, not a stale caller.
    """
    log: list[Any] = []
    bind(declare(Transition("go", ["new"], "done", conditions=[noting(log)])))

    with pytest.raises(TypeError, match="expected_version="):
        ticket.flow.go(expected_version=version)

    assert nothing_happened(ticket, log)


def test_call_without_a_person_skips_permissions(bind: Bind, ticket: Ticket) -> None:
    """
    Neither user nor actor, or a text for an actor, is a system call: conditions hold, permissions are not asked.
    """
    log: list[Any] = []
    bind(
        declare(
            Transition(
                "go",
                ["new"],
                "new",
                permissions=[noting(log, "permission", False)],
                conditions=[noting(log, "condition")],
            )
        )
    )

    answers = [ticket.flow.go(), ticket.flow.go(user=None, actor=None), ticket.flow.go(actor="warehouse")]

    assert answers == [True] * 3
    assert names(log) == ["condition"] * 3
    assert list(ticket.flow.history.values_list("actor_id", "actor_label")) == [("", ""), ("", ""), ("", "warehouse")]


@pytest.mark.parametrize(
    "given", ["user", "actor", "lazy user", "lazy actor", "visitor", "visitor as actor", "lazy visitor", "both"]
)
def test_person_never_skips_permissions(bind: Bind, ticket: Ticket, clerk: Any, given: str) -> None:
    """
    A user, however passed, saved or anonymous, is judged; a denial leaves everything as it was.
    """
    log: list[Any] = []
    bind(
        declare(
            Transition(
                "go",
                ["new"],
                "done",
                permissions=[noting(log, "permission", False)],
                conditions=[noting(log, "condition")],
            )
        )
    )
    people: dict[str, dict[str, Any]] = {
        "user": {"user": clerk},
        "actor": {"actor": clerk},
        "lazy user": {"user": SimpleLazyObject(lambda: clerk)},
        "lazy actor": {"actor": SimpleLazyObject(lambda: clerk)},
        "visitor": {"user": AnonymousUser()},
        "visitor as actor": {"actor": AnonymousUser()},
        "lazy visitor": {"user": SimpleLazyObject(AnonymousUser)},
        "both": {"user": clerk, "actor": "warehouse"},
    }

    with pytest.raises(TransitionForbidden):
        ticket.flow.go(**people[given])

    judged = names(log)
    log.clear()
    assert judged == ["permission"]
    assert nothing_happened(ticket, log)


def test_user_is_judged_and_actor_recorded(bind: Bind, ticket: Ticket, clerk: Any, django_user_model: Any) -> None:
    """
    With both, the user's rights count and the actor's name is kept; hooks get both.
    """
    log: list[Any] = []
    boss = django_user_model.objects.create_user("boss")
    bind(
        declare(
            Transition(
                "go", ["new"], "done", permissions=[noting(log, "permission")], side_effects=[noting(log, "work")]
            )
        )
    )

    ticket.flow.go(user=boss, actor=clerk, reason="on behalf")

    assert log[0][:2] == ("permission", boss)
    assert (log[1][2]["user"], log[1][2]["actor"]) == (boss, clerk)
    change = ticket.flow.history.get()
    assert (change.actor, change.actor_id, change.actor_label, change.reason) == (
        clerk,
        str(clerk.pk),
        "clerk",
        "on behalf",
    )


@commits
def test_every_hook_gets_the_callers_keywords_and_the_engines(bind: Bind, ticket: Ticket, clerk: Any) -> None:
    """
    Guards, prepare, side effects and callbacks see the same keywords, ids and context.
    """
    log: list[Any] = []
    slots = ("permissions", "conditions", "prepare", "side_effects", "callbacks")
    bind(declare(Transition("go", ["new"], "done", **{slot: [noting(log, slot)] for slot in slots})))

    ticket.flow.go(user=clerk, reason="ready", tracking="AB123")

    last = {name: (user, keywords) for name, user, keywords in log}
    assert set(last) == set(slots)
    for user, keywords in last.values():
        assert user == clerk
        assert (keywords["tracking"], keywords["reason"], keywords["actor"]) == ("AB123", "ready", clerk)
        assert (
            keywords["transition_id"]
            == keywords["tr_id"]
            == keywords["root_id"]
            == StatusChange.objects.get().transition_id
        )
        assert keywords["parent_id"] is None
    assert last["prepare"][1]["context"] is last["side_effects"][1]["context"] is last["callbacks"][1]["context"]


def test_hook_that_names_its_keywords_gets_those_alone(bind: Bind, ticket: Ticket) -> None:
    """
    ``**kwargs`` is not needed: a hook may name what it wants, and a default stands where nothing was passed.
    """
    seen: list[Any] = []

    def work(instance: Any, tracking: str, carrier: str = "post", *, reason: str) -> None:
        seen.append((instance, tracking, carrier, reason))

    bind(declare(Transition("go", ["new"], "done", side_effects=[work, lambda instance: seen.append("bare")])))

    ticket.flow.go(tracking="AB123", reason="ready", other=1)

    assert seen == [(ticket, "AB123", "post", "ready"), "bare"]
