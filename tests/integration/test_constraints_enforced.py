"""
Test that the database refuses what the table does not list, whoever asks.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.db.models import F, Value
from django.db.models.functions import Concat

from django_logic.constraints import is_installed, suspended
from tests.constraints_app import models
from tests.constraints_app.models import ODD_STATES, Answer, Level, Odd, Order, OrderProxy, Parcel, Rush, Stage, Status

pytestmark = pytest.mark.django_db

EVERY_MODEL = [Order, Rush, Level, Answer, Odd, models.Letter, Parcel]


def stored(instance: Any, field: str = "status") -> Any:
    """
    Read one column as it is in the database.
    """
    return type(instance).objects.values_list(field, flat=True).get(pk=instance.pk)


def refused(call: Any, *arguments: Any, **keywords: Any) -> str:
    """
    Return what the database said when it refused.
    """
    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        call(*arguments, **keywords)
    return str(caught.value)


def run(sql: str, *parameters: Any) -> None:
    """
    Execute SQL as another service would.
    """
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)


def test_update_along_the_table_passes() -> None:
    """
    A listed move is written.
    """
    order = Order.objects.create()

    Order.objects.filter(pk=order.pk).update(status=Status.PLACED)

    assert stored(order) == "placed"


def test_update_off_the_table_is_refused() -> None:
    """
    QuerySet.update() to a known state by a move that is not listed changes nothing.
    """
    order = Order.objects.create()

    refused(Order.objects.filter(pk=order.pk).update, status=Status.PAID)

    assert stored(order) == "draft"


def test_update_out_of_a_final_state_is_refused() -> None:
    """
    A state without targets is left by nobody.
    """
    order = Order.objects.create()
    Order.objects.filter(pk=order.pk).update(status=Status.CANCELLED)

    refused(Order.objects.filter(pk=order.pk).update, status=Status.DRAFT)

    assert stored(order) == "cancelled"


def test_update_of_many_rows_is_refused_whole_when_one_move_is_illegal() -> None:
    """
    One illegal row undoes the statement for all rows.
    """
    draft, placed = Order.objects.create(), Order.objects.create(status=Status.PLACED)

    refused(Order.objects.update, status=Status.PAID)

    assert (stored(draft), stored(placed)) == ("draft", "placed")


def test_update_by_an_expression_is_judged_by_its_result() -> None:
    """
    What the database computes is judged like what the caller wrote.
    """
    odd = Odd.objects.create(state="draft")

    refused(Odd.objects.update, state=Concat(F("state"), Value("x")))
    Odd.objects.update(state=Value("Draft"))

    assert stored(odd, "state") == "Draft"


def test_same_value_again_passes_in_any_state() -> None:
    """
    Writing the state a row is in is no move, even in a final state.
    """
    order = Order.objects.create()
    Order.objects.filter(pk=order.pk).update(status=Status.CANCELLED)

    Order.objects.filter(pk=order.pk).update(status=Status.CANCELLED)
    order.refresh_from_db()
    order.save()

    assert stored(order) == "cancelled"


def test_other_columns_change_freely_in_any_state() -> None:
    """
    A final state freezes no other column.
    """
    order = Order.objects.create()
    Order.objects.filter(pk=order.pk).update(status=Status.CANCELLED)

    Order.objects.filter(pk=order.pk).update(note="called the customer")

    assert stored(order, "note") == "called the customer"


def test_save_of_a_stale_instance_is_refused() -> None:
    """
    An instance that still holds an old state can't drag the row back.
    """
    order = Order.objects.create()
    Order.objects.filter(pk=order.pk).update(status=Status.PLACED)

    refused(order.save)

    assert stored(order) == "placed"


def test_bulk_update_off_the_table_is_refused() -> None:
    """
    bulk_update() is held to the table.
    """
    orders = Order.objects.bulk_create([Order(note="a"), Order(note="b")])
    orders = list(Order.objects.all()) if orders[0].pk is None else orders
    orders[0].status, orders[1].status = Status.PLACED, Status.PAID

    refused(Order.objects.bulk_update, orders, ["status"])

    assert [stored(order) for order in orders] == ["draft", "draft"]


def test_raw_sql_off_the_table_is_refused() -> None:
    """
    Another service's SQL is held to the table.
    """
    order = Order.objects.create()

    refused(run, "UPDATE constraints_app_order SET status = 'paid' WHERE id = %s", order.pk)

    assert stored(order) == "draft"


def test_unknown_value_is_refused() -> None:
    """
    A value that is no state at all is refused.
    """
    order = Order.objects.create()

    refused(Order.objects.filter(pk=order.pk).update, status="shipped")

    assert stored(order) == "draft"


@pytest.mark.parametrize("state", [Status.DRAFT, Status.PLACED])
def test_birth_in_an_initial_state_passes(state: Status) -> None:
    """
    A row may be created in each initial state.
    """
    order = Order.objects.create(status=state)

    assert stored(order) == state.value


@pytest.mark.parametrize("state", [Status.PAID, Status.CANCELLED, "asdf"])
def test_birth_in_another_state_is_refused(state: str) -> None:
    """
    create() and bulk_create() in any other state leave no row.
    """
    refused(Order.objects.create, status=state)
    refused(Order.objects.bulk_create, [Order(status=Status.DRAFT), Order(status=state)])

    assert not Order.objects.exists()


def test_birth_with_ignored_conflicts_is_refused() -> None:
    """
    ignore_conflicts=True ignores no illegal birth.
    """
    refused(Order.objects.bulk_create, [Order(status=Status.PAID)], ignore_conflicts=True)

    assert not Order.objects.exists()


def test_birth_is_free_without_initial() -> None:
    """
    Without initial=, a row may be created in any state.
    """
    parcel = Parcel.objects.create(state="done")

    assert stored(parcel, "state") == "done"


def upsert(order: Order) -> None:
    """
    Insert an order or overwrite the state of the one that is there.
    """
    target = {} if connection.vendor == "mysql" else {"unique_fields": ["id"]}
    Order.objects.bulk_create([order], update_conflicts=True, update_fields=["status"], **target)


def test_upsert_over_an_existing_row_is_judged_as_a_move() -> None:
    """
    An upsert that meets a row moves it, so the table decides and not the initial states.
    """
    order = Order.objects.create(status=Status.PLACED)

    upsert(Order(pk=order.pk, status=Status.PAID))
    upsert(Order(pk=order.pk, status=Status.PAID))
    refused(upsert, Order(pk=order.pk, status=Status.DRAFT))

    assert stored(order) == "paid"


def test_upsert_of_a_new_row_is_judged_as_a_birth() -> None:
    """
    An upsert that meets no row creates one, so the initial states decide.
    """
    refused(upsert, Order(pk=4711, status=Status.PAID))
    upsert(Order(pk=4712, status=Status.PLACED))

    assert list(Order.objects.values_list("pk", "status")) == [(4712, "placed")]


def test_proxy_is_held_to_the_table() -> None:
    """
    A proxy has the constraint of the model it stands for.
    """
    order = Order.objects.create()

    refused(OrderProxy.objects.filter(pk=order.pk).update, status=Status.PAID)

    assert stored(order) == "draft"


def test_child_is_held_to_both_tables() -> None:
    """
    A multi-table child keeps its parent's moves and its own.
    """
    rush = Rush.objects.create(lane="fast")

    refused(Rush.objects.filter(pk=rush.pk).update, status=Status.PAID)
    refused(Rush.objects.filter(pk=rush.pk).update, lane="slow")

    assert (stored(rush), stored(rush, "lane")) == ("draft", "fast")


def test_numbers_are_states_and_zero_is_one() -> None:
    """
    Integer states move, and are born, along the table; 0 is no missing state.
    """
    level = Level.objects.create(code="a")

    refused(Level.objects.create, code="b", stage=Stage.FIRST)
    refused(Level.objects.filter(pk="a").update, stage=Stage.SECOND)
    Level.objects.filter(pk="a").update(stage=Stage.FIRST)
    Level.objects.filter(pk="a").update(stage=Stage.NONE)

    assert stored(level, "stage") == 0


def test_null_is_a_state_like_others() -> None:
    """
    A move from or to NULL is legal only if the table lists None.
    """
    answer = Answer.objects.create()
    yes = Answer.objects.create()
    rows = Answer.objects.filter(pk=answer.pk)

    Answer.objects.filter(pk=yes.pk).update(verdict="yes")
    refused(Answer.objects.filter(pk=yes.pk).update, verdict=None)
    refused(Answer.objects.create, verdict="yes")
    refused(rows.update, verdict="perhaps")
    rows.update(verdict=None)
    rows.update(verdict="no")
    rows.update(verdict=None)

    assert (stored(answer, "verdict"), stored(yes, "verdict")) == (None, "yes")


def test_booleans_are_states() -> None:
    """
    A flag that is set once can't be taken back.
    """
    answer = Answer.objects.create()

    Answer.objects.update(is_sealed=True)
    refused(Answer.objects.update, is_sealed=False)

    assert stored(answer, "is_sealed") is True


def test_odd_texts_are_compared_exactly() -> None:
    """
    Quotes, percent signs, backslashes, other scripts, case and trailing spaces make different states.
    """
    odd = Odd.objects.create(state="")

    for state, following in pairwise(ODD_STATES):
        for other in ODD_STATES:
            if other not in (state, following):
                refused(Odd.objects.update, state=other)
        Odd.objects.update(state=state)
        Odd.objects.update(state=following)
        assert stored(odd, "state") == following


@pytest.mark.parametrize("state", [*ODD_STATES])
def test_odd_texts_are_birth_states(state: str) -> None:
    """
    A row is born in any listed text, and in nothing close to it.
    """
    odd = Odd.objects.create(state=state)

    refused(Odd.objects.create, state=state + "x")
    refused(Odd.objects.create, state=state + "  ")

    assert stored(odd, "state") == state


def test_refused_move_is_named() -> None:
    """
    The message names constraint, table, key and both states; on SQLite, the constraint.
    """
    order = Order.objects.create()

    said = refused(Order.objects.filter(pk=order.pk).update, status=Status.PAID)

    wanted = f"constraints_order_moves: constraints_app_order {order.pk} may not move from 'draft' to 'paid'."
    assert ("constraints_order_moves" if connection.vendor == "sqlite" else wanted) in said


def test_refused_birth_is_named() -> None:
    """
    The message names constraint, table, key and state; on SQLite, the constraint.
    """
    said = refused(Level.objects.create, code="x-1", stage=Stage.SECOND)

    wanted = "constraints_level_moves: constraints_app_level x-1 may not be created as '2'."
    assert ("constraints_level_moves" if connection.vendor == "sqlite" else wanted) in said


def test_refused_move_of_long_states_is_still_an_integrity_error() -> None:
    """
    A message that does not fit is cut, and the refusal stays what it is.
    """
    Odd.objects.create(state="🦄")

    said = refused(Odd.objects.update, state="žluťoučký" * 4)

    assert "constraints_odd_moves" in said


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_constraints_of_migrated_models_are_installed(model: Any) -> None:
    """
    After migrate, every declared constraint is in the database in its present version.
    """
    declared = [entry for entry in model._meta.constraints if hasattr(entry, "edges")]

    assert declared
    assert all(is_installed(connection, model, entry) for entry in declared)


def test_long_names_of_children_differ() -> None:
    """
    Two children of one abstract model have triggers of their own under names the database takes.
    """
    models.Letter.objects.create(state="done")
    Parcel.objects.create(state="done")

    refused(models.Letter.objects.update, state="new")
    refused(Parcel.objects.update, state="new")


def fixture(folder: Any, *rows: Any) -> str:
    """
    Write a fixture of orders and return its path.
    """
    path = folder / "orders.json"
    path.write_text(
        json.dumps([{"model": "constraints_app.order", "pk": pk, "fields": {"status": status}} for pk, status in rows])
    )
    return str(path)


def test_loaddata_creates_and_overwrites_along_the_table(tmp_path: Any) -> None:
    """
    A fixture of rows in initial states, and of moves, loads.
    """
    call_command("loaddata", fixture(tmp_path, (1, "draft"), (2, "placed")), verbosity=0)
    call_command("loaddata", fixture(tmp_path, (1, "placed"), (2, "placed")), verbosity=0)

    assert list(Order.objects.order_by("pk").values_list("status", flat=True)) == ["placed", "placed"]


def test_loaddata_of_rows_past_their_birth_is_refused(tmp_path: Any) -> None:
    """
    initial= holds for fixtures as well.
    """
    refused(call_command, "loaddata", fixture(tmp_path, (1, "paid")), verbosity=0)

    assert not Order.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_loaddata_of_rows_past_their_birth_passes_while_suspended(tmp_path: Any) -> None:
    """
    suspended() lets a load in any state through and puts the triggers back.
    """
    constraint = Order._meta.constraints[1]

    with suspended(Order):
        call_command("loaddata", fixture(tmp_path, (1, "paid")), verbosity=0)

    assert list(Order.objects.values_list("status", flat=True)) == ["paid"]
    assert is_installed(connection, Order, constraint)
    refused(Order.objects.update, status="draft")


@pytest.mark.django_db(transaction=True)
def test_suspended_takes_several_models_and_a_proxy_for_its_table() -> None:
    """
    All named models are unguarded in the block, the others and everything afterwards guarded.
    """
    with suspended(OrderProxy, Level):
        Order.objects.create(status="paid")
        Level.objects.create(code="a", stage=2)
        refused(Odd.objects.create, state="nowhere")

    refused(Order.objects.create, status="paid")
    refused(Level.objects.create, code="b", stage=2)


@pytest.mark.django_db(transaction=True)
def test_suspended_puts_the_triggers_back_after_an_error() -> None:
    """
    The database guards again when the block fails.
    """
    with pytest.raises(ZeroDivisionError), suspended(Order):
        raise ZeroDivisionError

    assert is_installed(connection, Order, Order._meta.constraints[1])


@pytest.mark.django_db(transaction=True)
def test_suspended_in_a_transaction_is_refused_where_it_would_end_it() -> None:
    """
    MySQL, which commits with each trigger, refuses; the others suspend within the transaction.
    """
    with transaction.atomic():
        if connection.vendor == "mysql":
            with pytest.raises(transaction.TransactionManagementError, match="atomic"), suspended(Order):
                pass
        else:
            with suspended(Order):
                Order.objects.create(status="paid")

    assert is_installed(connection, Order, Order._meta.constraints[1])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("round_", [1, 2])
def test_flush_between_tests_keeps_the_triggers(round_: int) -> None:
    """
    Emptying the tables, as TransactionTestCase does, neither trips over the triggers nor takes them away.
    """
    order = Order.objects.create()

    refused(Order.objects.update, status=Status.PAID)
    call_command("flush", interactive=False, verbosity=0)

    assert not Order.objects.filter(pk=order.pk).exists()
    Order.objects.create()
    refused(Order.objects.update, status=Status.PAID)
