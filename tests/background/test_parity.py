"""
Prove that a hook can't tell where it runs: the same keyword names, values and types in a call and on a worker.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import AnonymousUser
from hypothesis import HealthCheck, given, settings

from django_logic import Action, Transition
from django_logic.background import BackgroundAction, BackgroundTransition, run_available, sync_execution
from tests.app.hooked import Boom
from tests.app.models import Grade, Status, Ticket
from tests.background.flows import AT_ONCE, Flow, declare, new_ticket, run_out
from tests.flows import bindings
from tests.keyword_values import KEYWORDS, Line, told

pytestmark = pytest.mark.django_db(transaction=True)

#: Keywords of every type that may be passed.
VALUES: dict[str, Any] = {
    "text": "é'\"%s\\",
    "number": 2**70,
    "price": Decimal("1.50"),
    "ratio": -0.0,
    "nothing": None,
    "flag": True,
    "key": UUID(int=7),
    "raw": b"\x00\xff",
    "at": datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Prague"), fold=1),
    "naive": datetime(2026, 1, 1, 1, 1, 1, 7),  # noqa: DTZ001 (callers may pass them)
    "utc": datetime(2026, 1, 1, tzinfo=UTC),
    "day": date(2026, 1, 1),
    "clock": time(1, 2, 3),
    "span": timedelta(days=-1, microseconds=1),
    "lines": [(1, "a"), {"b": {1, 2}}, frozenset({"x"})],
    "mapping": {1: "one", ("a", 2): None, "$type": "uuid"},
    "status": Status.PLACED,
    "grade": Grade.NONE,
    "line": Line("sku", Decimal("2.00")),
    "user_id": 3,
    "empty": {},
}


class Seen(list[Any]):
    """
    Make hooks that write down what they receive.
    """

    def hook(self, slot: str, *, answer: Any = None, error: Exception | None = None, fills: bool = False) -> Any:
        """
        Make the hook of a slot; the first side effect fills the context.
        """

        def run(instance: Any, *user: Any, **keywords: Any) -> Any:
            self.append((slot, type(instance), instance.state, dict(keywords), dict(keywords["context"])))
            if fills:
                keywords["context"]["filled"] = (1, Status.DRAFT)
            if error is not None:
                raise error
            return answer

        run.__name__ = slot
        return run

    def described(self) -> list[Any]:
        """
        Describe what each hook got, ids by their type and role, so that two runs can be compared.
        """
        ids: dict[Any, str] = {}
        found = []
        for slot, model, state, keywords, context in self:
            shown = {}
            for name, value in keywords.items():
                if isinstance(value, UUID) and name in ("transition_id", "tr_id", "root_id", "parent_id"):
                    shown[name] = ids.setdefault(value, f"UUID {len(ids)}")
                elif name == "exception":
                    shown[name] = repr(value)
                elif name == "context":
                    shown[name] = type(value).__name__
                elif name in ("user", "actor"):
                    shown[name] = f"{type(value)} {value}"
                else:
                    shown[name] = repr(told(value))
            found.append((slot, model, state, sorted(shown.items()), repr(sorted(told(context)[1]))))
        return found


def declared(kind: str, seen: Seen, *, fails: bool) -> list[Any]:
    """
    Declare one transition or action with a hook in every slot, and what follows it.
    """
    make: Any = {
        "sync": partial(Transition, target="done"),
        "sync action": Action,
        "action": partial(BackgroundAction, max_errors=1, retry=AT_ONCE),
    }.get(kind if kind.startswith("sync") else kind.partition(" ")[2]) or partial(
        BackgroundTransition, target="done", max_errors=1, retry=AT_ONCE
    )
    first = make(
        "go",
        sources=["new"],
        permissions=[seen.hook("permission", answer=True)],
        conditions=[seen.hook("condition", answer=True)],
        prepare=[seen.hook("prepare")],
        side_effects=[seen.hook("effect", fills=True), seen.hook("effect", error=Boom("no") if fails else None)],
        callbacks=[seen.hook("callback"), seen.hook("callback")],
        failure_callbacks=[seen.hook("failure")],
        next_transition="on",
    )
    to = {} if "action" in kind else {"target": "over"}
    on = make("on", sources=["done", "new"], side_effects=[seen.hook("on")], **to)
    return [first, on]


def run(kind: str, *, fails: bool, **keywords: Any) -> list[Any]:
    """
    Run the transition of a kind on a fresh object and describe what its hooks got.
    """
    seen = Seen()
    with bindings() as bind:
        bind(declare(*declared(kind, seen, fails=fails)))
        ticket = new_ticket()
        execute = partial(ticket.flow.go, **keywords)
        if kind.startswith("inline"):
            with sync_execution():
                attempt_quietly(execute)
        else:
            attempt_quietly(execute)
            run_out()
    return seen.described()


def attempt_quietly(call: Any) -> None:
    """
    Make a call whose hooks may fail.
    """
    with suppress(Boom):
        call()


def without_order_of_judging(described: list[Any]) -> list[Any]:
    """
    Leave out what differs on purpose: prepare of background work runs on the worker, after the guards of the call.

    A synchronous call with prepare hooks is judged twice, before them and under the lock.
    """
    guards = [entry for entry in described if entry[0] in ("permission", "condition")]
    rest = [entry for entry in described if entry[0] not in ("permission", "condition")]
    first_of_each = {entry[0]: entry for entry in reversed(guards)}
    return [*sorted(first_of_each.items()), *rest]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("who", ["user", "anonymous", "name", "nobody"])
@pytest.mark.parametrize(
    ("sync", "others"),
    [("sync", ("inline", "worker")), ("sync action", ("inline action", "worker action"))],
)
def test_hooks_get_the_same_keywords_in_a_call_and_on_a_worker(
    clerk: Any, fails: bool, who: str, sync: str, others: tuple[str, ...]
) -> None:
    """
    Sync, sync mode and worker: every hook gets the same names with the same types and values, and the same ids.
    """
    people: dict[str, Any] = {
        "user": {"user": clerk},
        "anonymous": {"user": AnonymousUser()},
        "name": {"actor": "warehouse"},
        "nobody": {},
    }[who]

    expected = without_order_of_judging(run(sync, fails=fails, reason="because", **people, **VALUES))
    found = [without_order_of_judging(run(kind, fails=fails, reason="because", **people, **VALUES)) for kind in others]

    slots = [entry[0] for entry in expected]
    assert slots[-1] == ("failure" if fails else "on")
    assert found == [expected, expected]


def test_parity_test_sees_what_it_should(clerk: Any) -> None:
    """
    The description holds every engine name and keyword of a hook, so that a missing one would show.
    """
    described = {entry[0]: entry for entry in run("worker", fails=True, user=clerk, note=1)}

    names = [name for name, _value in described["failure"][3]]
    assert names == sorted(
        ["actor", "context", "exception", "note", "parent_id", "reason", "root_id", "tr_id", "transition_id", "user"]
    )
    assert "filled" in described["failure"][4]


@settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keywords=KEYWORDS)
def test_any_storable_keyword_comes_back_as_it_was(keywords: dict[str, Any]) -> None:
    """
    Whatever the codec takes, at any depth, reaches a hook of an attempt with its type, value and order.
    """
    seen: list[Any] = []
    reserved = {"user", "actor", "reason", "instance", "state", "exception", "context", "request"}
    keywords = {name: value for name, value in keywords.items() if name not in reserved and name.isidentifier()}
    with bindings() as bind:
        bind(
            declare(BackgroundTransition("go", ["new"], "done", side_effects=[lambda instance, **kw: seen.append(kw)]))
        )
        ticket = new_ticket()
        ticket.flow.go(**keywords)
        run_available()

    assert {name: told(seen[0][name]) for name in keywords} == {name: told(value) for name, value in keywords.items()}


def test_ids_are_the_same_in_every_hook_of_a_call(flow: Flow, ticket: Ticket) -> None:
    """
    Side effects, callbacks and history share one transition_id; what follows is its child under one root.
    """
    seen: list[Any] = []
    root, parent = uuid4(), uuid4()

    def note(instance: Any, **keywords: Any) -> None:
        ids = [keywords[name] for name in ("transition_id", "tr_id", "root_id", "parent_id")]
        seen.append([instance.state, *ids])

    flow(
        BackgroundTransition("go", ["new"], "done", side_effects=[note], callbacks=[note], next_transition="on"),
        BackgroundTransition("on", ["done"], "over", side_effects=[note], callbacks=[note]),
    )
    ticket.flow.go(transition_id=parent, root_id=root)
    run_out()

    first, told_first, second, told_second = seen
    assert first[1:] == told_first[1:]
    assert second[1:] == told_second[1:]
    assert all(isinstance(value, UUID) for entry in seen for value in entry[1:])
    assert (first[1], first[3], first[4]) == (first[2], root, parent)
    assert (second[3], second[4]) == (root, first[1])
    assert list(ticket.flow.history.values_list("transition_id", flat=True)) == [first[1], second[1]]


def test_calls_made_by_hooks_of_an_attempt_are_its_children(flow: Flow) -> None:
    """
    A side effect or callback that moves another object makes a child of its own transition, on a worker as in a call.
    """
    parent, child, grandchild = new_ticket(), new_ticket(), new_ticket(state="other")

    def drive(instance: Any, **keywords: Any) -> None:
        child.flow.touch()

    def drive_later(instance: Any, **keywords: Any) -> None:
        grandchild.flow.nudge()

    flow(
        BackgroundTransition("go", ["new"], "done", side_effects=[drive], callbacks=[drive_later]),
        Transition("touch", ["new"], "touched"),
        Transition("nudge", ["other"], "nudged"),
    )
    parent.flow.go()
    run_out()

    (made,) = parent.flow.history
    for touched in (child, grandchild):
        (change,) = touched.flow.history
        assert (change.parent_id, change.root_id) == (made.transition_id, made.root_id)
