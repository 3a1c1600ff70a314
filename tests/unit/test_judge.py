"""
Prove how a call is judged: the order of the questions, who is asked, and what speaks against it.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser

from django_logic import Action, Process, Transition
from django_logic.exceptions import Refusal
from django_logic.judge import Verdict, examine
from tests.app.models import Ticket
from tests.flows import call_on, declare, names, noting

USER = AnonymousUser()


def judged(process_class: type[Process], action: str = "go", state: str = "new", **keywords: Any) -> Verdict:
    """
    Judge an action against a state.
    """
    process = process_class(instance=Ticket(pk=1, state=state))
    return examine(call_on(process, action=action, **keywords), state, lambda: 3)


def codes(verdict: Verdict) -> list[str]:
    """
    Return the codes that speak against a call.
    """
    return [reason.code for reason in verdict.reasons]


def test_version_is_judged_before_anything_else() -> None:
    """
    A stale caller is told so before a permission is asked or the state is looked at.
    """
    log: list[Any] = []
    flow = declare(Transition("go", ["new"], "done", permissions=[noting(log, answer=False)]))

    stale = judged(flow, state="elsewhere", user=USER, expected_version=2)
    current = judged(flow, user=USER, expected_version=3)

    assert stale.reasons == (
        Refusal("stale_version", stale.reasons[0].message, {"action": "go", "expected": 2, "found": 3}),
    )
    assert codes(current) == ["permission"]
    assert len(log) == 1


@pytest.mark.parametrize("state", ["new", "done", "elsewhere"])
def test_denial_reveals_nothing_more(state: str) -> None:
    """
    A denied user learns neither whether the state fits, nor that it was done already, nor of any condition.
    """
    log: list[Any] = []
    flow = declare(
        Transition(
            "go",
            ["new"],
            "done",
            permissions=[noting(log, "permission", answer=False)],
            conditions=[noting(log, "condition", answer=False)],
        )
    )

    verdict = judged(flow, state=state, user=USER)

    assert codes(verdict) == ["permission"]
    assert verdict.is_duplicate is False
    assert names(log) == ["permission"]


def test_duplicate_is_judged_before_conditions() -> None:
    """
    An object that is at the target already is a duplicate, whatever its conditions would say.
    """
    log: list[Any] = []
    flow = declare(Transition("go", ["new"], "done", conditions=[noting(log, answer=False)]))

    verdict = judged(flow, state="done")

    assert (verdict.is_duplicate, verdict.reasons, log) == (True, (), [])


def test_refused_duplicate_has_its_own_code() -> None:
    """
    ``duplicates = "refuse"`` turns a duplicate into a refusal, by action and by target.
    """
    flow = declare(Transition("go", ["new"], "done"), duplicates="refuse")
    process = flow(instance=Ticket(pk=1, state="done"))

    by_action = judged(flow, state="done")
    by_target = examine(call_on(process, target="done"), "done")
    to_birth_state = examine(call_on(process, target="new"), "new")

    assert [codes(verdict) for verdict in (by_action, by_target, to_birth_state)] == [["duplicate"]] * 3


def test_self_transition_is_never_a_duplicate() -> None:
    """
    A target that is one of its own sources runs.
    """
    flow = declare(Transition("go", ["new", "done"], "done"))

    verdict = judged(flow, state="done")

    assert (verdict.is_duplicate, codes(verdict)) == (False, [])
    assert verdict.candidate is not None


def test_action_is_never_a_duplicate() -> None:
    """
    An action has no target an object could be at.
    """
    flow = declare(Action("go", ["new"]))

    assert codes(judged(flow, state="done")) == ["source_state"]


def test_source_is_judged_before_conditions() -> None:
    """
    From a state that is no source only that is told; conditions are not asked.
    """
    log: list[Any] = []
    flow = declare(Transition("go", ["new", "old"], "done", conditions=[noting(log, answer=False)]))

    verdict = judged(flow, state="elsewhere")

    assert codes(verdict) == ["source_state"]
    assert verdict.reasons[0].params == {
        "action": "go",
        "state": "elsewhere",
        "target": "done",
        "sources": ["new", "old"],
    }
    assert log == []


def test_every_failed_condition_is_named() -> None:
    """
    All conditions are asked, the process's before the transition's, and each one that fails is a reason.
    """
    log: list[Any] = []
    flow = declare(
        Transition(
            "go",
            ["new"],
            "done",
            conditions=[noting(log, "paid", False), noting(log, "known", True), noting(log, "packed", None)],
        ),
        conditions=[noting(log, "open_today", False)],
    )

    verdict = judged(flow)

    assert names(log) == ["open_today", "paid", "known", "packed"]
    assert [(reason.code, reason.params["hook"]) for reason in verdict.reasons] == [
        ("condition", "open_today"),
        ("condition", "paid"),
        ("condition", "packed"),
    ]


@pytest.mark.parametrize("answer", [False, None, 0, ""])
def test_guard_that_does_not_say_yes_says_no(answer: Any) -> None:
    """
    A guard has to answer with something true.
    """
    flow = declare(Transition("go", ["new"], "done", conditions=[noting([], answer=answer)]))

    assert codes(judged(flow)) == ["condition"]


def test_guard_that_raises_is_heard() -> None:
    """
    What a guard raises reaches the caller.
    """
    flow = declare(Transition("go", ["new"], "done", conditions=[noting([], answer=ZeroDivisionError("no weight"))]))

    with pytest.raises(ZeroDivisionError, match="no weight"):
        judged(flow)


def test_those_whose_sources_hold_the_state_speak() -> None:
    """
    Of several declarations of one name, the reasons come from those that start from the present state.
    """
    flow = declare(
        Transition("go", ["new"], "a", conditions=[noting([], "for_new", False)]),
        Transition("go", ["old"], "b", conditions=[noting([], "for_old", False)]),
    )

    assert [reason.params["hook"] for reason in judged(flow).reasons] == ["for_new"]
    assert [reason.params["hook"] for reason in judged(flow, state="old").reasons] == ["for_old"]
    assert codes(judged(flow, state="elsewhere")) == ["source_state"]


def test_one_that_fits_among_several_runs() -> None:
    """
    Guards choose between declarations of one name; a shared guard is asked once.
    """
    log: list[Any] = []
    shared = noting(log, "shared")
    flow = declare(
        Transition("go", ["new"], "a", conditions=[shared, noting(log, "small", False)]),
        Transition("go", ["new"], "b", conditions=[shared, noting(log, "large", True)]),
    )

    verdict = judged(flow)

    assert verdict.candidate is not None
    assert verdict.candidate.transition.target == "b"
    assert names(log) == ["shared", "small", "large"]


def test_several_that_fit_are_ambiguous() -> None:
    """
    None is chosen by its place in the list.
    """
    flow = declare(Transition("go", ["new"], "a"), nested_processes=[declare(Transition("go", ["new"], "b"))])

    verdict = judged(flow)

    assert (codes(verdict), verdict.candidate) == (["ambiguous"], None)
    assert verdict.reasons[0].params["candidates"] == ["FlowProcess.go", "FlowProcess.go"]


def test_permission_decides_between_declarations_too() -> None:
    """
    A user who may run only one of two gets that one, and only its conditions are asked.
    """
    log: list[Any] = []
    flow = declare(
        Transition("go", ["new"], "a", permissions=[noting([], answer=False)], conditions=[noting(log, "of_a")]),
        Transition("go", ["new"], "b", permissions=[noting([], answer=True)], conditions=[noting(log, "of_b")]),
    )

    verdict = judged(flow, user=USER)

    assert verdict.candidate is not None
    assert verdict.candidate.transition.target == "b"
    assert names(log) == ["of_b"]


def test_birth_state_reached_by_nothing_is_no_secret_way_in() -> None:
    """
    A move to the state an object is in, which no edge leads to, is a duplicate only for a user the process admits.
    """
    flow = declare(Transition("go", ["new"], "done"), permissions=[noting([], answer=False)])
    process = flow(instance=Ticket(pk=1, state="new"))

    system = examine(call_on(process, target="new"), "new")
    stranger = examine(call_on(process, target="new", user=USER), "new")

    assert system.is_duplicate is True
    assert codes(stranger) == ["permission"]
