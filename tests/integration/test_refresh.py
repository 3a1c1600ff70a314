"""
Prove that hooks work on what the row holds, and what of the instance in memory stays the caller's own.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_logic import Transition
from tests.app.hooked import Boom, fresh, hooked, nothing, stored
from tests.app.models import Item, Order, Product, Ticket

pytestmark = pytest.mark.django_db

#: For promises that show only where the call itself commits.
committing = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ticket() -> Ticket:
    """
    Give a saved object in its first state.
    """
    return Ticket.objects.create(note="first")


def test_hooks_see_the_row_as_it_is(ticket: Ticket, caplog: pytest.LogCaptureFixture) -> None:
    """
    Guards and side effects of a stale copy get fresh fields; one INFO line names those that were replaced.
    """
    caplog.set_level(logging.INFO, "django-logic.transition")
    stale, seen = fresh(ticket), []
    Ticket.objects.filter(pk=ticket.pk).update(note="second")

    def look(instance: Any, **kwargs: Any) -> bool:
        seen.append(instance.note)
        return True

    with hooked(Transition("go", ["new"], "done", conditions=[look], side_effects=[look])):
        stale.probe.go()

    lines = [record for record in caplog.records if "stale" in record.getMessage()]
    assert seen == ["second", "second"]
    assert stale.note == "second"
    assert [record.levelno for record in lines] == [logging.INFO]
    assert "note" in lines[0].getMessage()
    assert "second" not in lines[0].getMessage()


def test_nothing_is_said_of_a_fresh_copy(ticket: Ticket, caplog: pytest.LogCaptureFixture) -> None:
    """
    Where memory and row agree nothing is replaced and no line is written about it.
    """
    caplog.set_level(logging.INFO, "django-logic.transition")

    with hooked(Transition("go", ["new"], "done", side_effects=[nothing])):
        fresh(ticket).probe.go()

    assert not any("stale" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("hook", ["conditions", "permissions", "side_effects"])
def test_unsaved_edits_give_way_to_the_row(hook: str, ticket: Ticket, caplog: pytest.LogCaptureFixture) -> None:
    """
    An edit the caller never saved is replaced before any hook can act on it, and the log says so.
    """
    caplog.set_level(logging.INFO, "django-logic.transition")
    ticket.note = "never saved"

    with hooked(Transition("go", ["new"], "done", **{hook: [lambda instance, *user, **kwargs: True]})):
        ticket.probe.go()

    assert ticket.note == stored(ticket, "note") == "first"
    assert any("note" in record.getMessage() for record in caplog.records)


def test_refresh_false_keeps_the_instances_own_values(ticket: Ticket) -> None:
    """
    Process.refresh = False refreshes the state alone; the caller's unsaved values stay.
    """
    Ticket.objects.filter(pk=ticket.pk).update(note="second", state="ready")
    ticket.note = "mine"
    seen = []

    def look(instance: Any, **kwargs: Any) -> None:
        seen.append((instance.note, instance.state))

    with hooked(Transition("go", ["ready"], "done", side_effects=[look]), refresh=False):
        moved = ticket.probe.go()

    assert moved is True
    assert seen == [("mine", "ready")]
    assert (ticket.note, ticket.state) == ("mine", "done")
    assert stored(ticket, "note") == "second"


@committing
def test_a_move_without_hooks_refreshes_only_state_and_time() -> None:
    """
    The fast path touches nothing in memory but the state and the auto_now fields.
    """
    order = Order.objects.create()
    before = order.updated_at
    order.note = "unsaved"

    order.process.cancel()

    assert order.note == "unsaved"
    assert order.status == stored(order, "status") == "cancelled"
    assert order.updated_at == stored(order, "updated_at") > before
    assert stored(order, "note") == ""


@committing
def test_what_hooks_set_on_the_instance_survives(ticket: Ticket) -> None:
    """
    An attribute a side effect sets, saved or not, is there in the callbacks and for the caller.
    """
    seen = []

    def mark(instance: Any, **kwargs: Any) -> None:
        instance.note, instance.colour = "from hook", "red"

    def look(instance: Any, **kwargs: Any) -> None:
        seen.append((instance.note, instance.colour))

    with hooked(Transition("go", ["new"], "done", side_effects=[mark], callbacks=[look])):
        ticket.probe.go()

    assert seen == [("from hook", "red")]
    assert (ticket.note, ticket.colour) == ("from hook", "red")
    assert stored(ticket, "note") == "first"


def test_what_hooks_set_survives_a_failure_as_well(ticket: Ticket) -> None:
    """
    Failure callbacks find what the failing side effects left on the instance.
    """
    seen = []

    def mark_and_fail(instance: Any, **kwargs: Any) -> None:
        instance.colour = "red"
        raise Boom

    way = Transition(
        "go",
        ["new"],
        "done",
        side_effects=[mark_and_fail],
        failed_state="failed",
        failure_callbacks=[lambda instance, **kwargs: seen.append((instance.colour, instance.state))],
    )
    with hooked(way), pytest.raises(Boom):
        ticket.probe.go()

    assert seen == [("red", "failed")]


def test_a_stale_relation_is_loaded_again() -> None:
    """
    A foreign key that was replaced drops the related object loaded for the old one.
    """
    one, two = Product.objects.create(name="one"), Product.objects.create(name="two")
    item = Item.objects.create(order=Order.objects.create(), product=one)
    stale, seen = Item.objects.select_related("product").get(pk=item.pk), []
    Item.objects.filter(pk=item.pk).update(product=two)

    def look(instance: Any, **kwargs: Any) -> None:
        seen.append(instance.product.name)

    way = Transition("go", [1], 2, side_effects=[look])
    with hooked(way, model=Item, field="quantity"):
        stale.probe.go()

    assert seen == ["two"]


def test_related_objects_are_loaded_again() -> None:
    """
    Guards judge on what the database holds: relations loaded or prefetched before the call are read again.
    """
    product = Product.objects.create(stock=1)
    item = Item.objects.create(order=Order.objects.create(), product=product)
    order = Order.objects.prefetch_related("items__product").get()
    line = Item.objects.select_related("product").get(pk=item.pk)
    assert order.items.all()[0].product.stock == line.product.stock == 1
    Product.objects.update(stock=0)
    seen = []

    def look(instance: Any, **kwargs: Any) -> bool:
        seen.append((instance.items.all()[0] if isinstance(instance, Order) else instance).product.stock)
        return True

    with hooked(Transition("go", ["draft"], "done", conditions=[look]), model=Order, field="status"):
        order.probe.go()
    with hooked(Transition("take", [1], 2, conditions=[look]), model=Item, field="quantity"):
        line.probe.take()

    assert seen == [0, 0]
