"""
Prove that the matrix finds every difference between a process and the database below it.
"""

from __future__ import annotations

from typing import Any

import pytest

from django_logic import Process, Transition
from django_logic.testing import assert_matrix
from tests.app.models import Ticket
from tests.constraints_app.models import Order
from tests.flows import Bind, declare
from tests.testkit.shop import ParcelProcess

pytestmark = pytest.mark.django_db(transaction=True)

PLACE = Transition("place", ["draft"], "placed")
PAY = Transition("pay", ["placed"], "paid")
CANCEL = Transition("cancel", ["draft", "placed"], "cancelled")


def matrix_of(bind: Bind, *transitions: Transition) -> str:
    """
    Bind these transitions to an order and return what its matrix says.
    """
    process: type[Process] = bind(declare(*transitions), Order, "status")
    with pytest.raises(AssertionError) as caught:
        assert_matrix(process, Order)
    return str(caught.value)


def test_process_and_table_that_agree_pass(bind: Bind) -> None:
    """
    Every pair of states is tried, and nothing is left behind.
    """
    process = bind(declare(PLACE, PAY, CANCEL), Order, "status")

    assert_matrix(process, Order)

    assert Order.objects.count() == 1


def test_declared_move_that_the_database_refuses_is_found(bind: Bind) -> None:
    """
    The process promises what the table does not have.
    """
    told = matrix_of(bind, PLACE, PAY, CANCEL, Transition("refund", ["paid"], "cancelled"))

    assert "'paid' -> 'cancelled': declared, and the database refuses it: " in told
    assert told.count(" -> ") == 1


def test_move_of_the_database_that_the_process_lacks_is_found(bind: Bind) -> None:
    """
    The table still has what the process has lost.
    """
    told = matrix_of(bind, PLACE, PAY, Transition("cancel", ["draft"], "cancelled"))

    assert "'placed' -> 'cancelled': no process declares it, and the database takes it" in told
    assert told.count(" -> ") == 1


def test_declarations_that_fit_both_are_found(bind: Bind) -> None:
    """
    An action that two declarations answer to can never run.
    """
    told = matrix_of(bind, PLACE, PAY, CANCEL, Transition("place", ["draft"], "cancelled"))

    assert "'draft': place is declared and refused: " in told
    assert told.count("\n") == 1


def test_action_that_would_run_where_it_is_not_declared_is_found(bind: Bind) -> None:
    """
    A process that judges in its own way is judged, too.
    """

    class Lenient(Process):
        process_name = "lenient"
        transitions = [PLACE, PAY, CANCEL]

        def why_not(self, *arguments: Any, **keywords: Any) -> list[Any]:
            """
            Refuse nothing.
            """
            return []

    bind(Lenient, Order, "status")

    with pytest.raises(AssertionError) as caught:
        assert_matrix(Lenient, Order)

    assert "'paid': cancel is not declared and would run" in str(caught.value)


def test_column_nobody_guards_fails_unless_that_is_wanted(bind: Bind) -> None:
    """
    Without a constraint every illegal move is one that the database takes.
    """
    bind(ParcelProcess)

    with pytest.raises(AssertionError, match="'new' -> 'sent': no process declares it"):
        assert_matrix(ParcelProcess, Ticket)
    assert_matrix(ParcelProcess, Ticket, database=False)


def test_object_is_made_as_told(bind: Bind) -> None:
    """
    A model whose columns have no defaults needs its own way of making one.
    """
    process = bind(declare(PLACE, PAY, CANCEL), Order, "status")

    assert_matrix(process, Order, create=lambda: Order.objects.create(note="mine"))

    assert [order.note for order in Order.objects.all()] == ["mine"]


def test_model_without_that_process_is_refused() -> None:
    """
    A matrix of nothing would pass.
    """
    with pytest.raises(AssertionError, match=r"app\.Ticket is not bound to ParcelProcess"):
        assert_matrix(ParcelProcess, Ticket)
