"""
Try on ourselves what users of other libraries reported: one test for each thread, named in its docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.db import IntegrityError, migrations, models, transaction

from django_logic import Transition, TransitionConstraint
from django_logic.models import StatusChange
from django_logic.testing import race
from tests.app.models import Child, FromAbstract, OrderProxy, Parcel, SlugDocument, Ticket, UuidDocument
from tests.app.models import Order as Purchase
from tests.flows import Bind, declare, moves, noting, stored
from tests.migrations.timeline import create_order, timeline
from tests.scenarios.seed_app.models import Order

pytestmark = pytest.mark.django_db


#: Marks what depends on a real commit: callbacks, threads, the fast path outside any transaction.
commits = pytest.mark.django_db(transaction=True)


def fails(instance: Any, **keywords: Any) -> None:
    """
    Break after a first write.
    """
    Ticket.objects.filter(pk=instance.pk).update(note="half")
    raise ZeroDivisionError


@commits
def test_second_worker_finds_the_move_done(bind: Bind, ticket: Ticket) -> None:
    """
    Two stale copies run one move; its effect happens once (django-fsm#46, django-logic#86).
    """
    log: list[Any] = []
    bind(declare(Transition("pay", ["new"], "paid", side_effects=[noting(log)])))
    first, second = Ticket.objects.get(), Ticket.objects.get()

    answers = [first.flow.pay(), second.flow.pay()]

    assert answers == [True, False]
    assert (len(log), moves(ticket)) == (1, [("new", "paid")])


@commits
def test_many_workers_make_one_move(bind: Bind, ticket: Ticket) -> None:
    """
    However many ask at once, one wins, with one effect and one record (django-fsm#46).
    """
    log: list[Any] = []
    bind(declare(Transition("pay", ["new"], "paid", side_effects=[noting(log)])))

    answers = [each.answer for each in race(*[lambda: Ticket.objects.get(pk=ticket.pk).flow.pay()] * 6)]

    assert sorted(answers, key=str) == [False] * 5 + [True]
    assert (len(log), moves(ticket)) == (1, [("new", "paid")])


def test_database_refuses_what_the_library_would() -> None:
    """
    ``update()`` can write neither an unknown state nor an illegal move; other columns are free (django-fsm#295).
    """
    order = Order.objects.create()

    for status in ("asdf", "fulfilled"):
        with pytest.raises(IntegrityError), transaction.atomic():
            Order.objects.filter(pk=order.pk).update(status=status)
    Order.objects.filter(pk=order.pk).update(note="x")

    assert order.transition_to("placed") is True
    assert (stored(order, "status"), stored(order, "note")) == ("placed", "x")


def test_refresh_works_in_every_form(bind: Bind, ticket: Ticket) -> None:
    """
    After a foreign move the instance can be refreshed, wholly, in part or in vain, and moved on (django-fsm#174, #255).
    """
    bind(declare(Transition("pay", ["new"], "paid"), Transition("ship", ["paid"], "sent")))
    gone = Ticket.objects.create()

    Ticket.objects.get(pk=ticket.pk).flow.pay()
    ticket.refresh_from_db()
    refreshed = ticket.state
    ticket.flow.ship()
    ticket.refresh_from_db(fields=["note"])
    Ticket.objects.filter(pk=gone.pk).delete()
    with pytest.raises(Ticket.DoesNotExist):
        gone.refresh_from_db()
    ticket.note = "kept"
    ticket.save()

    assert (refreshed, ticket.state, stored(ticket)) == ("paid", "sent", "sent")
    assert moves(ticket) == [("new", "paid"), ("paid", "sent")]


@commits
def test_stale_copy_moves_from_the_fresh_state(bind: Bind, ticket: Ticket) -> None:
    """
    A copy that slept through a foreign move needs no refresh to make the next one (django-fsm#255).
    """
    bind(declare(Transition("pay", ["new"], "paid"), Transition("ship", ["paid"], "sent", side_effects=[noting([])])))
    stale = Ticket.objects.get()
    ticket.flow.pay()

    assert stale.flow.ship() is True

    assert (stale.state, stored(ticket)) == ("sent", "sent")


def test_permission_is_checked_by_the_call_itself(
    bind: Bind, ticket: Ticket, clerk: Any, django_user_model: Any
) -> None:
    """
    A call with a person checks, one without follows the one rule of system calls (django-fsm#263, viewflow#472).
    """
    boss = django_user_model.objects.create_user("boss", is_staff=True)
    bind(declare(Transition("approve", ["new"], "approved", permissions=[lambda instance, user: user.is_staff])))

    with pytest.raises(PermissionDenied):
        ticket.flow.approve(actor=clerk)
    refused = (stored(ticket), moves(ticket), ticket.flow.get_available_actions(user=clerk))
    ticket.flow.approve(actor=boss)

    assert refused == ("new", [], [])
    assert ticket.flow.history.get().actor == boss


@commits
def test_failed_state_survives_and_the_error_is_told(bind: Bind, ticket: Ticket) -> None:
    """
    The failed state is in the database with its record, and the caller gets the error (django-fsm#231, #234).
    """
    bind(declare(Transition("charge", ["new"], "charged", side_effects=[fails], failed_state="failed")))
    other = Ticket.objects.create()

    with pytest.raises(ZeroDivisionError):
        ticket.flow.charge()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        other.flow.charge()

    assert (stored(ticket), stored(ticket, "note"), moves(ticket)) == ("failed", "", [("new", "failed")])
    # Inside a caller's transaction all of it lives or dies with that transaction.
    assert (stored(other), moves(other)) == ("new", [])


@pytest.mark.parametrize(
    "make",
    [
        UuidDocument.objects.create,
        lambda: SlugDocument.objects.create(slug="a-b/c"),
        lambda: SlugDocument.objects.create(slug="9" * 60),
    ],
)
def test_key_of_any_kind_logs_and_lists(make: Callable[[], Any]) -> None:
    """
    UUID and text keys are logged as they are (fsm-log#34, #104).
    """
    document = make()

    document.process.publish()

    assert document.process.history.get().to_state == "published"
    assert StatusChange.objects.get(instance_id=str(document.pk)).to_state == "published"


@commits
def test_failed_move_undoes_itself_and_the_outer_work_commits(bind: Bind, ticket: Ticket) -> None:
    """
    Caught inside an outer transaction, a failed move leaves nothing of itself and spoils nothing (statesman#205).
    """
    bind(declare(Transition("ship", ["new"], "sent", side_effects=[fails])))

    with transaction.atomic():
        other = Ticket.objects.create(note="other")
        with suppress(ZeroDivisionError):
            ticket.flow.ship()

    assert (stored(ticket), stored(ticket, "note"), moves(ticket)) == ("new", "", [])
    assert stored(other, "note") == "other"


def test_proxies_children_and_abstract_parents_keep_their_moves() -> None:
    """
    Lists, history and constraint names work for each kind of inheritance (django-fsm#209, #256, #15).
    """
    order = Purchase.objects.create()
    proxy = OrderProxy.objects.get(pk=order.pk)
    listed = proxy.process.get_available_actions()
    abstract, child = FromAbstract.objects.create(), Child.objects.create()
    told = StringIO()

    assert listed == order.process.get_available_actions() == ["approve", "cancel"]
    assert [proxy.process.cancel(), abstract.process.publish(), child.process.publish()] == [True] * 3
    call_command("check", stdout=told, stderr=told)

    assert (stored(order, "status"), moves(order, "process")) == ("cancelled", [("draft", "cancelled")])
    assert (moves(abstract, "process"), moves(child, "process")) == ([("new", "published")], [("new", "published")])


def test_two_machines_of_one_model_stay_apart() -> None:
    """
    State, history and versions of two fields don't touch each other (statesman#500, fsm-log#74).
    """
    parcel = Parcel.objects.create()

    parcel.payment.pay()
    parcel.parcel.pack()
    newest = (parcel.payment.history.last().to_state, parcel.parcel.history.last().to_state)
    parcel.payment.refund()

    assert newest == ("paid", "packed")
    assert stored(parcel, "parcel_status") == "packed"
    assert set(StatusChange.objects.values_list("field_name", "sequence")) == {
        ("payment_status", 1),
        ("payment_status", 2),
        ("parcel_status", 1),
    }


@commits
def test_state_column_can_be_altered_under_its_trigger() -> None:
    """
    A longer column, a renamed one, a new one beside it: forward, back and forward again (pgtrigger#48, pghistory#38).
    """
    table = {"draft": ["placed"], "placed": []}

    def guard(field: str) -> TransitionConstraint:
        return TransitionConstraint(field=field, table=table, name="order_moves")

    with timeline() as line:
        line.forward(create_order(guard("status")))
        line.rows().create(status="placed")
        line.forward(migrations.AlterField("Order", "status", models.CharField(max_length=64, default="draft")))
        line.forward(
            migrations.RemoveConstraint("Order", "order_moves"),
            migrations.RenameField("Order", "status", "stage"),
            migrations.AddConstraint("Order", guard("stage")),
        )
        line.forward(migrations.AddField("Order", "note2", models.CharField(max_length=5, default="")))
        for _step in range(3):
            line.back()
        with pytest.raises(IntegrityError), transaction.atomic():
            line.rows().update(status="draft")
        line.forward(migrations.AlterField("Order", "status", models.CharField(max_length=64, default="draft")))

        with pytest.raises(IntegrityError), transaction.atomic():
            line.rows().update(status="draft")
        assert line.rows().get().status == "placed"
