"""
Prove that any key, column, kind of model and database can be moved.
"""

from __future__ import annotations

from typing import Any

import pytest

from django_logic import Transition
from django_logic.models import StatusChange
from tests.app.models import (
    Base,
    Child,
    FromAbstract,
    Legacy,
    Level,
    Order,
    OrderProxy,
    Parcel,
    SlugDocument,
    Status,
    Ticket,
    Typed,
    UuidDocument,
)
from tests.flows import Bind, declare, moves, stored

GO = Transition("go", ["new"], "done")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: UuidDocument.objects.create(), None),
        (lambda: SlugDocument.objects.create(slug="a-b/c?d=é 🚚"), "a-b/c?d=é 🚚"),
        (lambda: Ticket.objects.create(pk=2**62), str(2**62)),
        (lambda: FromAbstract.objects.create(), None),
        (lambda: Child.objects.create(), None),
        (lambda: Base.objects.create(), None),
    ],
)
def test_any_primary_key_moves_logs_and_lists(make: Any, key: str | None) -> None:
    """
    UUID, text and big keys, abstract and concrete parents: state and history agree for all.
    """
    thing = make()

    assert thing.process.publish(reason="ready") is True

    assert stored(thing) == thing.state == "published"
    assert moves(thing, "process") == [("new", "published")]
    assert StatusChange.objects.get().instance_id == (key or str(thing.pk))


@pytest.mark.django_db
def test_integer_states_move_to_zero_and_back() -> None:
    """
    An IntegerField holds states as well, 0 among them; history keeps them as text.
    """
    level = Level.objects.create()

    assert level.process.promote() is True
    assert level.process.reset() is True
    assert level.process.reset() is False

    assert (stored(level), level.state) == (0, 0)
    assert moves(level, "process") == [("0", "1"), ("1", "0")]


@pytest.mark.django_db
def test_empty_state_is_a_state(bind: Bind) -> None:
    """
    The empty text can be left and reached.
    """
    bind(declare(Transition("go", [""], "done"), Transition("back", ["done"], "")))
    ticket = Ticket.objects.create(state="")

    assert ticket.flow.go() is True
    assert ticket.flow.back() is True
    assert ticket.flow.back() is False

    assert stored(ticket) == ""
    assert moves(ticket) == [("", "done"), ("done", "")]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("keywords", [{}, {"expected_version": 0}], ids=["fast", "locked"])
def test_columns_that_need_quoting_are_moved(bind: Bind, keywords: Any) -> None:
    """
    A table, key, state and time column of an old database keep their names.
    """
    bind(declare(GO, Transition("back", ["done"], "new", side_effects=[lambda instance, **kw: None])), Legacy)
    thing = Legacy.objects.create()
    born = thing.changed

    answers = [thing.flow.go(**keywords), thing.flow.go(), thing.flow.back()]

    assert answers == [True, False, True]
    assert (stored(thing), moves(thing)) == ("new", [("new", "done"), ("done", "new")])
    assert Legacy.objects.get().changed == thing.changed > born


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("keywords", [{}, {"expected_version": 0}], ids=["fast", "locked"])
def test_column_that_gives_members_is_moved(bind: Bind, keywords: Any) -> None:
    """
    With a field that turns values into members, the instance keeps members and history keeps values.
    """
    bind(declare(Transition("place", [Status.DRAFT], Status.PLACED), Transition("back", ["placed"], "draft")), Typed)
    thing = Typed.objects.create()

    assert thing.flow.place(**keywords) is True
    placed = thing.state
    assert Typed.objects.get().flow.place() is False
    assert thing.flow.back() is True

    assert (placed, type(placed), thing.state) == (Status.PLACED, Status, Status.DRAFT)
    assert moves(thing) == [("draft", "placed"), ("placed", "draft")]


@pytest.mark.django_db
def test_two_machines_of_one_model_know_nothing_of_each_other() -> None:
    """
    State, history and version belong to a field's own process.
    """
    parcel = Parcel.objects.create()

    parcel.payment.pay()
    parcel.parcel.pack()
    parcel.payment.refund()

    assert (stored(parcel, "payment_status"), stored(parcel, "parcel_status")) == ("refunded", "packed")
    assert moves(parcel, "payment") == [("new", "paid"), ("paid", "refunded")]
    assert moves(parcel, "parcel") == [("new", "packed")]
    assert (parcel.payment.version, parcel.parcel.version) == (2, 1)


@pytest.mark.django_db
def test_proxy_and_child_share_history_with_the_owner_of_the_column() -> None:
    """
    Whoever moves a row, its history is one.
    """
    order, child = Order.objects.create(), Child.objects.create()

    OrderProxy.objects.get(pk=order.pk).process.cancel()
    child.process.publish()
    Base.objects.get(pk=child.pk).process.archive()

    assert moves(order, "process") == [("draft", "cancelled")]
    assert moves(child, "process") == [("new", "published"), ("published", "archived")]
    assert Child.objects.get().state == "archived"
    assert set(StatusChange.objects.values_list("model_name", flat=True)) == {"order", "base"}


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize("work", [False, True])
def test_object_of_another_database_is_moved_there(bind: Bind, work: bool) -> None:
    """
    State and history are written on the instance's own alias, and its twin elsewhere is not looked at.
    """
    bind(declare(Transition("go", ["new"], "done", side_effects=[lambda instance, **kw: None] if work else [])))
    here, there = Ticket.objects.create(pk=1, state="elsewhere"), Ticket.objects.using("other").create(pk=1)

    assert there.flow.go(expected_version=0) is True

    assert Ticket.objects.get(pk=1).state == here.state == "elsewhere"
    assert Ticket.objects.using("other").get(pk=1).state == "done"
    assert (StatusChange.objects.count(), StatusChange.objects.using("other").count()) == (0, 1)
    assert (there.flow.version, here.flow.version) == (1, 0)
    assert [entry.to_state for entry in there.flow.history] == ["done"]
