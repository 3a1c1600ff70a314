"""
Prove when receivers are told what, and that they decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from django_logic import Action, Transition, signals
from django_logic.exceptions import TransitionNotAllowed
from django_logic.models import AuditEntry
from tests.app.models import Ticket
from tests.flows import Bind, declare, moves, noting, records, stored

pytestmark = pytest.mark.django_db

#: Marks what depends on a real commit: callbacks, threads, the fast path outside any transaction.
commits = pytest.mark.django_db(transaction=True)

ALL = {
    "started": signals.transition_started,
    "finished": signals.transition_finished,
    "failed": signals.transition_failed,
    "refused": signals.transition_refused,
}


class Ear:
    """
    Hear every signal: its name, what it carried, what the database said, whether a transaction was open.
    """

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any], Any, bool]] = []
        self.receivers = {name: self.receiver(name) for name in ALL}

    def receiver(self, name: str) -> Any:
        """
        Make the receiver of one signal.
        """

        def hear(sender: Any, call: Any, **facts: Any) -> None:
            facts.pop("signal")
            here = stored(call.instance), connection.in_atomic_block
            self.heard.append((name, {"sender": sender, "call": call, **facts}, *here))

        return hear

    @property
    def names(self) -> list[str]:
        """
        Return what was heard, in order.
        """
        return [entry[0] for entry in self.heard]


@pytest.fixture
def ear() -> Iterator[Ear]:
    """
    Listen for one test.
    """
    ear = Ear()
    for name, signal in ALL.items():
        signal.connect(ear.receivers[name])
    yield ear
    for name, signal in ALL.items():
        signal.disconnect(ear.receivers[name])


@pytest.fixture
def deaf() -> Iterator[list[str]]:
    """
    Connect a receiver to every signal that breaks, after harming the connection as well as it can.
    """
    heard: list[str] = []

    def breaks(sender: Any, call: Any, **facts: Any) -> None:
        heard.append("broke")
        with connection.cursor() as cursor:
            cursor.execute("SELECT nonsense FROM nowhere")

    for signal in ALL.values():
        signal.connect(breaks)
    yield heard
    for signal in ALL.values():
        signal.disconnect(breaks)


def breaks(instance: Any, **keywords: Any) -> None:
    """
    Break.
    """
    raise ZeroDivisionError


@commits
@pytest.mark.parametrize("work", [False, True])
def test_move_is_told_before_and_after(bind: Bind, ticket: Ticket, ear: Ear, work: bool) -> None:
    """
    Started comes before anything is locked, finished after the commit and before the callbacks.
    """
    hooks = {
        "side_effects": [noting([])],
        "callbacks": [lambda instance, **kw: ear.heard.append(("callback", {}, None, False))],
    }
    bind(declare(Transition("go", ["new"], "done", **(hooks if work else {}))))

    ticket.flow.go()

    assert ear.names == ["started", "finished", *(["callback"] if work else [])]
    started, finished = ear.heard[:2]
    assert started[2:] == ("new", False)
    assert finished[2:] == ("done", False)
    assert started[1]["sender"] is finished[1]["sender"] is Ticket
    assert started[1]["call"] is finished[1]["call"]
    assert finished[1]["moved"] is True
    assert (finished[1]["move"].expected, finished[1]["move"].new) == ("new", "done")


@commits
def test_move_in_a_callers_transaction_is_told_inside_it(bind: Bind, ticket: Ticket, ear: Ear) -> None:
    """
    Receivers share the caller's transaction, so what they write goes back with it.
    """
    bind(declare(Transition("go", ["new"], "done")))

    with transaction.atomic():
        ticket.flow.go()
        transaction.set_rollback(True)

    assert [(entry[0], entry[3]) for entry in ear.heard] == [("started", True), ("finished", True)]
    assert (stored(ticket), records()) == ("new", (0, 0))


def test_duplicate_and_action_are_told_without_a_move(bind: Bind, ticket: Ticket, ear: Ear) -> None:
    """
    ``moved`` is False for a duplicate; neither it nor an action carries a move.
    """
    bind(declare(Transition("go", ["old"], "new"), Action("look", ["new"])))

    ticket.flow.go()
    ticket.flow.look()

    assert [(name, facts.get("moved"), facts.get("move")) for name, facts, *_ in ear.heard if name == "finished"] == [
        ("finished", False, None),
        ("finished", True, None),
    ]


@commits
@pytest.mark.parametrize("failed_state", [None, "broken"])
def test_failure_is_told_after_the_undo(bind: Bind, ticket: Ticket, ear: Ear, failed_state: str | None) -> None:
    """
    Failed carries the exception and the move to ``failed_state``, if one was written.
    """
    bind(declare(Transition("go", ["new"], "done", side_effects=[breaks], failed_state=failed_state)))

    with pytest.raises(ZeroDivisionError) as caught:
        ticket.flow.go()

    assert ear.names == ["started", "failed"]
    _name, facts, state, in_transaction = ear.heard[1]
    assert facts["exception"] is caught.value
    assert (facts["move"] and facts["move"].new) == failed_state
    assert (state, in_transaction) == (failed_state or "new", False)


@pytest.mark.parametrize("why", ["source", "condition", "version", "busy"])
def test_refusal_is_told_with_its_exception(bind: Bind, ticket: Ticket, ear: Ear, why: str) -> None:
    """
    Refused carries what the caller got; nothing was written.
    """
    sources, conditions = (
        (["other"] if why == "source" else ["new"]),
        ([noting([], answer=False)] if why == "condition" else []),
    )
    inner: list[Any] = []

    def again(instance: Ticket, **keywords: Any) -> None:
        with pytest.raises(TransitionNotAllowed) as caught:
            instance.flow.go()
        inner.append(caught.value)

    bind(
        declare(
            Transition("go", sources, "done", conditions=conditions),
            Transition("outer", ["new"], "new", side_effects=[again]),
        )
    )

    if why == "busy":
        ticket.flow.outer()
    else:
        with pytest.raises(TransitionNotAllowed) as caught:
            ticket.flow.go(**({"expected_version": 5} if why == "version" else {}))
        inner.append(caught.value)

    refused = [facts for name, facts, *_ in ear.heard if name == "refused"]
    assert [facts["exception"] for facts in refused] == inner
    assert stored(ticket) == "new"


def test_wrong_call_is_not_told_at_all(bind: Bind, ticket: Ticket, ear: Ear) -> None:
    """
    A TypeError and an unknown name come before the first signal.
    """
    bind(declare(Transition("go", ["new"], "done")))

    for call in (lambda: ticket.flow.go(1), lambda: ticket.flow.go(state=1), lambda: ticket.flow.nonsense):
        with pytest.raises((TypeError, AttributeError)):
            call()

    assert ear.heard == []


@commits
@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("work", [False, True])
def test_breaking_receiver_changes_nothing(
    bind: Bind,
    ticket: Ticket,
    deaf: list[str],
    caplog: pytest.LogCaptureFixture,
    settings: Any,
    in_transaction: bool,
    work: bool,
) -> None:
    """
    A receiver that raises, even after a database error in the caller's transaction, is logged; audit is complete.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    log: list[Any] = []
    hooks = {"side_effects": [noting(log)], "callbacks": [noting(log)]} if work else {}
    bind(declare(Transition("go", ["new"], "done", **hooks), Transition("early", ["other"], "done")))

    def live() -> None:
        assert ticket.flow.go() is True
        assert ticket.flow.go() is False
        with pytest.raises(TransitionNotAllowed):
            ticket.flow.early(expected_version=8)

    if in_transaction:
        with transaction.atomic():
            live()
    else:
        live()

    assert (stored(ticket), moves(ticket)) == ("done", [("new", "done")])
    assert len(log) == (2 if work else 0)
    assert len(deaf) == 6
    assert list(AuditEntry.objects.order_by("id").values_list("outcome", flat=True)) == [
        "moved",
        "duplicate",
        "refused",
    ]
    assert any("breaks" in record.getMessage() for record in caplog.records)


def test_call_made_by_a_receiver_is_a_child(bind: Bind, ticket: Ticket) -> None:
    """
    What a receiver starts belongs to the call it was told of.
    """
    other = Ticket.objects.create()
    bind(declare(Transition("go", ["new"], "done")))

    def follow(sender: Any, call: Any, **facts: Any) -> None:
        if call.instance.pk == ticket.pk:
            other.flow.go()

    signals.transition_finished.connect(follow)
    try:
        ticket.flow.go()
    finally:
        signals.transition_finished.disconnect(follow)

    outer, inner = ticket.flow.history.get(), other.flow.history.get()
    assert (inner.parent_id, inner.root_id) == (outer.transition_id, outer.transition_id)
