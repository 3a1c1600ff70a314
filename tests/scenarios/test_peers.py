"""
Try on ourselves what users of other libraries reported: one test for each thread, named in its docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.db import IntegrityError, migrations, models, transaction

from django_logic import Transition, TransitionConstraint
from django_logic.models import StatusChange
from django_logic.testing import Scenario
from tests.app.models import Child, FromAbstract, OrderProxy, Parcel, SlugDocument, Ticket, UuidDocument
from tests.app.models import Order as Purchase
from tests.app.process import OrderProcess, PaymentProcess
from tests.app.process import ParcelProcess as PackingProcess
from tests.flows import noting
from tests.migrations.timeline import create_order, timeline
from tests.scenarios.seed_app.models import Order

pytestmark = pytest.mark.django_db


#: Marks what depends on a real commit: callbacks, threads, the fast path outside any transaction.
commits = pytest.mark.django_db(transaction=True)

Scenarios = Callable[..., Scenario]
PAY = Transition("pay", ["new"], "paid")
SHIP = Transition("ship", ["paid"], "sent")


def fails(instance: Any, **keywords: Any) -> None:
    """
    Break after a first write.
    """
    Ticket.objects.filter(pk=instance.pk).update(note="half")
    raise ZeroDivisionError


@commits
def test_second_worker_finds_the_move_done(tickets_with: Scenarios) -> None:
    """
    Two stale copies run one move; its effect happens once (django-fsm#46, django-logic#86).
    """
    tickets = tickets_with(Transition("pay", ["new"], "paid", side_effects=[noting([], "charge")]))
    ticket = tickets.create_instance()
    first, second = Ticket.objects.get(), Ticket.objects.get()

    answers = [tickets.transition(first, "pay"), tickets.transition(second, "pay")]

    assert answers == [True, False]
    tickets.assert_journey([{"action": "pay", "side_effects": ["charge"]}, {"action": "pay", "side_effects": []}])
    tickets.assert_history(ticket, [("new", "paid", None)])


@commits
def test_many_workers_make_one_move(tickets_with: Scenarios, race: Callable[..., Any]) -> None:
    """
    However many ask at once, one wins, with one effect and one record (django-fsm#46).
    """
    log: list[Any] = []
    tickets = tickets_with(Transition("pay", ["new"], "paid", side_effects=[noting(log)]))
    ticket = tickets.create_instance()

    answers = [each.answer for each in race(*[lambda: Ticket.objects.get(pk=ticket.pk).flow.pay()] * 6)]

    assert sorted(answers, key=str) == [False] * 5 + [True]
    assert len(log) == 1
    tickets.assert_history(ticket, [("new", "paid", None)])


def test_database_refuses_what_the_library_would(orders: Scenario) -> None:
    """
    ``update()`` can write neither an unknown state nor an illegal move; other columns are free (django-fsm#295).
    """
    order = orders.create_instance()
    before = orders.capture(order, ["status", "note"])

    for status in ("asdf", "fulfilled"):
        with pytest.raises(IntegrityError), transaction.atomic():
            Order.objects.filter(pk=order.pk).update(status=status)
    Order.objects.filter(pk=order.pk).update(note="x")

    assert orders.transition_to(order, "placed") is True
    orders.assert_changed(order, before, {"status": ("draft", "placed"), "note": ("", "x")})


def test_refresh_works_in_every_form(tickets_with: Scenarios) -> None:
    """
    After a foreign move the instance can be refreshed, wholly, in part or in vain, and moved on (django-fsm#174, #255).
    """
    tickets = tickets_with(PAY, SHIP)
    ticket, gone = tickets.create_instance(), tickets.create_instance()

    tickets.transition(Ticket.objects.get(pk=ticket.pk), "pay")
    ticket.refresh_from_db()
    refreshed = ticket.state
    tickets.transition(ticket, "ship")
    ticket.refresh_from_db(fields=["note"])
    Ticket.objects.filter(pk=gone.pk).delete()
    with pytest.raises(Ticket.DoesNotExist):
        gone.refresh_from_db()
    ticket.note = "kept"
    ticket.save()

    assert (refreshed, ticket.state) == ("paid", "sent")
    tickets.assert_state(ticket, "sent")
    tickets.assert_history(ticket, [("new", "paid", None), ("paid", "sent", None)])


@commits
def test_stale_copy_moves_from_the_fresh_state(tickets_with: Scenarios) -> None:
    """
    A copy that slept through a foreign move needs no refresh to make the next one (django-fsm#255).
    """
    tickets = tickets_with(PAY, Transition("ship", ["paid"], "sent", side_effects=[noting([])]))
    ticket = tickets.create_instance()
    stale = Ticket.objects.get()
    tickets.transition(ticket, "pay")

    assert tickets.transition(stale, "ship") is True

    assert stale.state == "sent"
    tickets.assert_state(stale, "sent")


def test_permission_is_checked_by_the_call_itself(tickets_with: Scenarios, clerk: Any, django_user_model: Any) -> None:
    """
    A call with a person checks, one without follows the one rule of system calls (django-fsm#263, viewflow#472).
    """
    boss = django_user_model.objects.create_user("boss", is_staff=True)
    tickets = tickets_with(
        Transition("approve", ["new"], "approved", permissions=[lambda instance, user: user.is_staff])
    )
    ticket = tickets.create_instance()

    tickets.transition(ticket, "approve", actor=clerk, expect_raises=PermissionDenied)
    tickets.assert_state(ticket, "new")
    tickets.assert_refused(ticket, "approve", "permission", user=clerk)
    tickets.assert_not_available(ticket, ["approve"], user=clerk)
    tickets.transition(ticket, "approve", actor=boss)

    tickets.assert_history(ticket, [("new", "approved", boss)])
    assert ticket.flow.history.get().actor == boss


@commits
def test_failed_state_survives_and_the_error_is_told(tickets_with: Scenarios) -> None:
    """
    The failed state is in the database with its record, and the caller gets the error (django-fsm#231, #234).
    """
    tickets = tickets_with(Transition("charge", ["new"], "charged", side_effects=[fails], failed_state="failed"))
    ticket, other = tickets.create_instance(), tickets.create_instance()
    before = tickets.capture(ticket, ["note"])

    tickets.transition(ticket, "charge", expect_raises=ZeroDivisionError)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        tickets.transition(other, "charge")

    tickets.assert_state(ticket, "failed")
    tickets.assert_unchanged(ticket, before, ["note"])
    tickets.assert_history(ticket, [("new", "failed", None)])
    # Inside a caller's transaction all of it lives or dies with that transaction.
    tickets.assert_state(other, "new")
    tickets.assert_history(other, [])


@pytest.mark.parametrize(
    "make",
    [
        UuidDocument.objects.create,
        lambda: SlugDocument.objects.create(slug="a-b/c"),
        lambda: SlugDocument.objects.create(slug="9" * 60),
    ],
)
def test_key_of_any_kind_logs_and_lists(process_scenario: Scenarios, make: Callable[[], Any]) -> None:
    """
    UUID and text keys are logged as they are (fsm-log#34, #104).
    """
    document = make()
    documents = process_scenario(type(document.process), type(document), state_field="state")

    documents.transition(document, "publish")

    documents.assert_history(document, [("new", "published", None)])
    assert StatusChange.objects.get(instance_id=str(document.pk)).to_state == "published"


@commits
def test_failed_move_undoes_itself_and_the_outer_work_commits(tickets_with: Scenarios) -> None:
    """
    Caught inside an outer transaction, a failed move leaves nothing of itself and spoils nothing (statesman#205).
    """
    tickets = tickets_with(Transition("ship", ["new"], "sent", side_effects=[fails]))
    ticket = tickets.create_instance()
    before = tickets.capture(ticket, ["state", "note"])

    with transaction.atomic():
        tickets.create_instance(note="other")
        tickets.transition(ticket, "ship", expect_raises=ZeroDivisionError)

    tickets.assert_unchanged(ticket, before, ["state", "note"])
    tickets.assert_history(ticket, [])
    tickets.assert_related_count(Ticket.objects.filter(note="other"), 1)


def test_proxies_children_and_abstract_parents_keep_their_moves(process_scenario: Scenarios) -> None:
    """
    Lists, history and constraint names work for each kind of inheritance (django-fsm#209, #256, #15).
    """
    order = Purchase.objects.create()
    proxy = OrderProxy.objects.get(pk=order.pk)
    told = StringIO()

    assert proxy.process.get_available_actions() == order.process.get_available_actions() == ["approve", "cancel"]
    for instance, action, move in (
        (proxy, "cancel", ("draft", "cancelled", None)),
        (FromAbstract.objects.create(), "publish", ("new", "published", None)),
        (Child.objects.create(), "publish", ("new", "published", None)),
    ):
        scenario = process_scenario(type(instance.process), type(instance))
        assert scenario.transition(instance, action) is True
        scenario.assert_history(instance, [move])
    call_command("check", stdout=told, stderr=told)

    purchases = process_scenario(OrderProcess, Purchase)
    purchases.assert_state(order, "cancelled")
    purchases.assert_history(order, [("draft", "cancelled", None)])


def test_two_machines_of_one_model_stay_apart(process_scenario: Scenarios) -> None:
    """
    State, history and versions of two fields don't touch each other (statesman#500, fsm-log#74).
    """
    payments = process_scenario(PaymentProcess, Parcel, state_field="payment_status")
    packings = process_scenario(PackingProcess, Parcel, state_field="parcel_status")
    parcel = payments.create_instance()

    payments.transition(parcel, "pay")
    packings.transition(parcel, "pack")
    packings.assert_history(parcel, [("new", "packed", None)])
    payments.assert_history(parcel, [("new", "paid", None)])
    payments.transition(parcel, "refund")

    payments.assert_history(parcel, [("new", "paid", None), ("paid", "refunded", None)])
    packings.assert_state(parcel, "packed")
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
