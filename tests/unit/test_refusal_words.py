"""
Prove whose words a refused person reads.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy

from django_logic import Process, Transition, refusal_message
from django_logic.judge import Verdict, examine
from tests.app.models import Ticket
from tests.flows import call_on, declare, noting

USER = AnonymousUser()


def judged(process_class: type[Process], action: str = "go", state: str = "new", **keywords: Any) -> Verdict:
    """
    Judge an action against a state.
    """
    process = process_class(instance=Ticket(pk=1, state=state))
    return examine(call_on(process, action=action, **keywords), state, lambda: 3)


def words(process_class: type[Process], **keywords: Any) -> str:
    """
    Return what the first refusal tells a person.
    """
    return judged(process_class, **keywords).reasons[0].message


def test_words_come_from_the_nearest_place_that_has_some() -> None:
    """
    Hook, transition, nested process, root, built in: the first that has words speaks.
    """

    def closed(instance: Any, **keywords: Any) -> bool:
        return False

    @refusal_message("the hook")
    def speaking(instance: Any, **keywords: Any) -> bool:
        return False

    def root_of(hook: Any, *places: str) -> type[Process]:
        said = {place: {"condition": f"the {place}"} for place in places}
        transition = Transition("go", ["new"], "done", conditions=[hook], refusal_messages=said.get("transition"))
        nested = declare(transition, refusal_messages=said.get("nested", {}))
        return declare(nested_processes=[nested], refusal_messages=said.get("root", {}))

    assert words(root_of(speaking, "transition", "nested", "root")) == "the hook"
    assert words(root_of(closed, "transition", "nested", "root")) == "the transition"
    assert words(root_of(closed, "nested", "root")) == "the nested"
    assert words(root_of(closed, "root")) == "the root"
    assert words(root_of(closed)) == "A condition for this is not met."


def test_words_may_be_given_for_one_guard_by_its_name() -> None:
    """
    A map may speak for a single guard; that is nearer than words for the whole code.
    """
    flow = declare(
        Transition("go", ["new"], "done", conditions=[noting([], "paid", False), noting([], "packed", False)]),
        refusal_messages={"paid": gettext_lazy("Not paid."), "condition": "Not ready."},
    )

    assert [reason.message for reason in judged(flow).reasons] == ["Not paid.", "Not ready."]


@pytest.mark.parametrize(
    ("code", "keywords"),
    [
        ("permission", {"user": USER}),
        ("source_state", {"state": "elsewhere"}),
        ("duplicate", {"state": "done"}),
        ("stale_version", {"expected_version": 1}),
    ],
)
def test_every_code_may_have_words_of_the_projects_own(code: str, keywords: dict[str, Any]) -> None:
    """
    Maps speak for every code, not for guards alone.
    """
    flow = declare(
        Transition("go", ["new"], "done", permissions=[noting([], answer=False)] if code == "permission" else []),
        duplicates="refuse",
        refusal_messages={code: "In our words."},
    )

    verdict = judged(flow, **keywords)

    assert [(reason.code, reason.message) for reason in verdict.reasons] == [(code, "In our words.")]


def test_guard_with_a_wrong_name_in_a_map_is_refused_at_once() -> None:
    """
    The judge can rely on every key of a map being a code or a guard.
    """
    with pytest.raises(ImproperlyConfigured, match="neither a refusal code nor a guard"):
        declare(Transition("go", ["new"], "done"), refusal_messages={"nobody": "?"})
