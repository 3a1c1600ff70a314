"""
Promises of `django_logic.verify`: what disagrees is found, and nothing else is.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from django.db import connection

from django_logic import Process, Transition, verify
from django_logic.constraints import suspended
from django_logic.machines import machine_of, machines
from django_logic.models import StatusChange
from django_logic.verify import Finding, FindingCode
from tests.app.models import Base, Child, Grade, Level, Loose, Order, Parcel, Sale, SlugDocument, Ticket, UuidDocument
from tests.constraints_app import models as constrained
from tests.flows import Bind, declare
from tests.past import force, live, row

pytestmark = pytest.mark.django_db


def found(model: Any, process: str | None = None, using: str = "default") -> list[Finding]:
    """
    Verify one machine.
    """
    return list(verify.verify(machine_of(model, process), using))


def told(model: Any, process: str | None = None) -> list[tuple[str, str, str]]:
    """
    Verify one machine and keep code, object and text.
    """
    return [(finding.code, finding.object, finding.text) for finding in found(model, process)]


def test_moves_of_the_library_agree() -> None:
    """
    Objects moved through the public interface, ones that never moved, and deleted ones leave nothing to find.
    """
    moved, gone = Sale.objects.create(), Sale.objects.create()
    Sale.objects.create()
    for order in (moved, gone):
        order.transition_to("placed")
        order.transition_to("cancelled")
    gone.delete()
    for keyed in (UuidDocument.objects.create(), SlugDocument.objects.create(slug="a/b'"), Child.objects.create()):
        keyed.process.publish()
        keyed.process.reopen()
        keyed.process.touch()
    level = Level.objects.create()
    level.process.promote()
    parcel = Parcel.objects.create()
    parcel.payment.pay()

    findings = [finding for machine in machines() for finding in verify.verify(machine, "default")]

    assert findings == []


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Sale.objects.create(), id="integer"),
        pytest.param(lambda: UuidDocument.objects.create(), id="uuid"),
        pytest.param(lambda: SlugDocument.objects.create(slug="a/b'ü"), id="text"),
        pytest.param(lambda: Base.objects.create(pk=-7), id="negative"),
    ],
)
def test_column_that_history_does_not_explain_is_found(make: Any) -> None:
    """
    A column written directly is named with its object, what it holds and where its newest move went.
    """
    order = make()
    states = ("placed", "cancelled") if isinstance(order, Sale) else ("published", "archived")
    live(order, (states[0], 0))
    force(order, states[1])

    (finding,) = found(type(order))

    assert (finding.code, finding.object) == (FindingCode.COLUMN, str(order.pk))
    assert (finding.model, finding.process) == (type(order)._meta.label, "process")
    assert finding.text == (f"the column holds {states[1]!r}, but the newest move (number 1) went to {states[0]!r}.")
    assert "dl_lint" in finding.mend


def test_number_zero_null_and_empty_text_are_compared_as_history_writes_them(bind: Bind) -> None:
    """
    0 is not nothing, and nothing is not an empty text.
    """
    live(Level.objects.create(), (Grade.BRONZE, 0), (Grade.NONE, 1))
    bind(
        declare(Transition("go", sources=["new", ""], target=None), Transition("stop", sources=[None], target="")),
        Loose,
    )
    agreeing = Loose.objects.create(state="new")
    live(agreeing, (None, 0), process="flow")
    differing = Loose.objects.create(state="new")
    live(differing, ("", 0), process="flow")
    force(differing, None)

    assert told(Level) == []
    assert told(Loose, "flow") == [
        ("column", str(differing.pk), "the column holds None, but the newest move (number 1) went to ''.")
    ]


def test_column_that_differs_in_case_only_is_found(bind: Bind) -> None:
    """
    "Gone" is not "gone", whatever the database's collation says.
    """
    bind(declare(Transition("go", sources=["new"], target="gone"), Transition("run", sources=["new"], target="Gone")))
    ticket = live(Ticket.objects.create(), ("gone", 0), process="flow")
    force(ticket, "Gone")

    assert [code for code, _object, _text in told(Ticket, "flow")] == ["column"]


def test_break_in_a_chain_is_found() -> None:
    """
    A move that starts elsewhere than the one before ended is named by its number, for deleted objects too.
    """
    broken, deleted = Sale.objects.create(status="fulfilled"), Sale.objects.create(status="fulfilled")
    for order in (broken, deleted):
        StatusChange.objects.bulk_create(
            [
                row(order, 1, "draft", "placed", 0),
                row(order, 2, "placed", "processing", 1),
                row(order, 3, "placed", "processing", 2),
                row(order, 4, "processing", "fulfilled", 3),
            ]
        )
    keys = {str(broken.pk), str(deleted.pk)}
    deleted.delete()

    findings = told(Sale)

    text = "move 2 went to 'processing', but move 3 starts from 'placed'."
    assert {(code, key, text) for code, key, text in findings} == {("chain", key, text) for key in keys}


def test_gap_in_the_sequence_is_found() -> None:
    """
    A missing row is named by its neighbours, a missing first one too, and links across the gap are not judged.
    """
    first, second = Sale.objects.create(status="fulfilled"), Sale.objects.create(status="placed")
    StatusChange.objects.bulk_create(
        [
            row(first, 1, "draft", "placed", 0),
            row(first, 4, "processing", "fulfilled", 3),
            row(second, 2, "draft", "placed", 0),
        ]
    )

    findings = told(Sale)

    assert sorted(findings, key=lambda finding: int(finding[1])) == [
        ("sequence", str(first.pk), "move 1 is followed by move 4."),
        ("sequence", str(second.pk), "the first move on record is number 2, not 1."),
    ]


def test_states_the_code_does_not_know_are_counted_with_examples() -> None:
    """
    One finding for each such state: how many objects, three of their keys, and the state that may be meant.
    """
    typos = [Sale.objects.create(status="canceled") for _ in range(5)]
    lone = Sale.objects.create(status="?")

    findings = found(Sale)

    keys = ", ".join(str(order.pk) for order in typos[:3])
    assert [(finding.code, finding.object, finding.text) for finding in findings] == [
        (
            "unknown_state",
            "",
            f"5 objects hold the state 'canceled', which the code does not know: {keys}, …. Did you mean 'cancelled'?",
        ),
        ("unknown_state", "", f"1 object holds the state '?', which the code does not know: {lone.pk}."),
    ]
    assert "RenameState" in findings[0].mend


def test_random_states_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Beyond a number of unknown states the rest is counted together.
    """
    monkeypatch.setattr(verify, "STRANGERS", 2)
    Sale.objects.bulk_create([Sale(status=f"x{number}") for number in range(5)])

    findings = told(Sale)

    assert len(findings) == 3
    assert findings[-1][2] == "3 more objects hold still other states the code does not know."


@pytest.mark.parametrize("model", [SlugDocument, UuidDocument])
def test_every_object_is_read_a_chunk_at_a_time(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Whatever the size of a chunk, each object and each move is read once, the last ones too.
    """
    documents = [model(slug=f"k{number}") if model is SlugDocument else model() for number in range(7)]
    model.objects.bulk_create(documents)
    for document in documents:
        force(live(document, ("published", 0), ("new", 1)), "archived")
    steps: list[int] = []
    monkeypatch.setattr(verify, "CHUNK", 3)

    findings = list(verify.verify(machine_of(model), "default", steps.append))

    assert {finding.object for finding in findings} == {str(document.pk) for document in documents}
    assert sum(steps) == verify.size_of(machine_of(model), "default") == 21


def test_large_history_is_verified_with_flat_memory() -> None:
    """
    Thousands of objects cost a few queries for each thousand, and memory for a thousand.
    """
    Ticket.objects.bulk_create([Ticket(state="published") for _ in range(4000)])
    tickets = list(Ticket.objects.order_by("pk"))
    StatusChange.objects.bulk_create([row(ticket, 1, "new", "published", 0) for ticket in tickets], batch_size=500)
    force(tickets[-1], "archived")
    del tickets[:-1]

    tracemalloc.start()
    try:
        findings = found(Ticket)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [finding.object for finding in findings] == [str(tickets[-1].pk)]
    assert peak < 3_000_000


def test_move_that_commits_while_verifying_is_no_finding() -> None:
    """
    What looks wrong because a move came between the reads of column and history is looked at again before it is told.
    """
    order = Sale.objects.create()
    pending = ["placed"]

    def move_before_history_is_read(execute: Any, sql: str, *rest: Any) -> Any:
        if pending and "ROW_NUMBER" in sql:
            order.transition_to(pending.pop())
        return execute(sql, *rest)

    with connection.execute_wrapper(move_before_history_is_read):
        findings = found(Sale)

    order.refresh_from_db()
    assert (findings, order.status) == ([], "placed")


def test_machines_that_share_a_column_are_judged_together(bind: Bind) -> None:
    """
    Where two processes move one column, the newest move of either explains it, and each numbers its own.
    """
    bind(declare(Transition("close", sources=["published"], target="closed"), name="closing"), Ticket)
    ticket = Ticket.objects.create()
    ticket.process.publish()
    ticket.closing.close()
    wrong = Ticket.objects.create()
    wrong.process.publish()
    force(wrong, "new")

    assert [(code, key) for code, key, _text in told(Ticket, "process")] == [("column", str(wrong.pk))]
    assert [(code, key) for code, key, _text in told(Ticket, "closing")] == [("column", str(wrong.pk))]


@pytest.mark.django_db(databases=["default", "other"])
def test_each_database_is_verified_for_itself() -> None:
    """
    The alias decides which objects and which history are read.
    """
    order = Sale.objects.using("other").create()
    live(order, ("placed", 0), using="other")
    force(order, "cancelled", using="other")

    assert found(Sale) == []
    assert [finding.code for finding in found(Sale, using="other")] == ["column"]


def orders(*, without: str = "", surplus: tuple[str, str] | None = None) -> type[Process]:
    """
    Declare the moves of the guarded order, less one target or plus one move.
    """
    edges = [(start, end) for start, ends in constrained.TABLE.items() for end in ends if end != without]
    moves = [Transition(f"from_{start}_to_{end}", sources=[start], target=end) for start, end in edges]
    moves += [Transition("extra", sources=[surplus[0]], target=surplus[1])] if surplus else []
    return declare(*moves)


def test_constraint_that_equals_the_declaration_and_is_installed_is_no_finding(bind: Bind) -> None:
    """
    The constraint as migrated agrees with a process of the same moves.
    """
    bind(orders(), constrained.Order, "status")

    assert told(constrained.Order, "flow") == []


def test_constraint_that_differs_is_found(bind: Bind) -> None:
    """
    Moves that only the code or only the database allows are named.
    """
    bind(orders(without="paid", surplus=("cancelled", "draft")), constrained.Order, "status")

    (finding,) = found(constrained.Order, "flow")

    assert finding.code == FindingCode.CONSTRAINT_DIFFERS
    assert "lacks 'cancelled' → 'draft'" in finding.text
    assert "allows 'placed' → 'paid'" in finding.text
    assert "tests.flows.FlowProcess" in finding.text


@pytest.mark.django_db(transaction=True)
def test_constraint_that_is_not_in_the_database_is_found(bind: Bind) -> None:
    """
    A table whose triggers are gone is told, and one whose triggers are back is not.
    """
    bind(orders(), constrained.Order, "status")

    with suspended(constrained.Order):
        (finding,) = found(constrained.Order, "flow")

    assert (finding.code, finding.model) == (FindingCode.CONSTRAINT_MISSING, "constraints_app.Order")
    assert "'constraints_order_moves' is not in the database" in finding.text
    assert told(constrained.Order, "flow") == []


def test_model_without_a_constraint_has_nothing_to_compare() -> None:
    """
    Whether to have one is the system check's affair.
    """
    assert told(Order) == []
