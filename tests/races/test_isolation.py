"""
Prove what a call makes of snapshots: it judges and numbers by the newest rows, or says that it can't.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, transaction

from django_logic import Transition
from django_logic.exceptions import TransitionTemporarilyUnavailable
from tests.app.hooked import fresh, hooked, moves, nothing, stored
from tests.app.models import Product, Ticket
from tests.races.together import PATIENCE, Worker, execute

pytestmark = pytest.mark.django_db(transaction=True)

#: How a session asks for a snapshot that lasts as long as its transaction.
OLD_SNAPSHOT = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}"


@pytest.fixture
def ticket() -> Ticket:
    """
    Give a saved object in its first state.
    """
    return Ticket.objects.create()


def read_repeatably() -> None:
    """
    Connect this thread anew under MySQL's own default, an isolation with snapshots, as Django's OPTIONS do.
    """
    connection.close()
    options = {**connection.settings_dict["OPTIONS"], "isolation_level": "repeatable read"}
    connection.settings_dict = {**connection.settings_dict, "OPTIONS": options}


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("effects", [[], [nothing]])
@pytest.mark.usefixtures("only_postgres")
def test_a_serialization_failure_is_temporary(effects: list[Any], level: str, ticket: Ticket) -> None:
    """
    A transaction whose snapshot is older than the row can't judge it: temporary, never a move on old facts.
    """

    def call() -> Any:
        execute(OLD_SNAPSHOT.format(level=level))
        copy = fresh(ticket)
        with transaction.atomic():
            Ticket.objects.count()
            assert Worker(lambda: fresh(ticket).process.publish()).result() is True
            assert Worker(lambda: fresh(ticket).process.reopen()).result() is True
            return copy.probe.go()

    with hooked(Transition("go", ["new"], "done", side_effects=effects)):
        outcome = Worker(call).join()

    assert isinstance(outcome.error, TransitionTemporarilyUnavailable)
    assert stored(ticket) == "new"
    assert moves(ticket, "process") == [("new", "published"), ("published", "new")]


@pytest.mark.usefixtures("only_postgres")
def test_a_write_skew_is_temporary(ticket: Ticket) -> None:
    """
    A conflict of what two SERIALIZABLE transactions read and wrote undoes the move and is told as temporary.
    """
    other = Ticket.objects.create()

    def skew() -> None:
        execute(OLD_SNAPSHOT.format(level="SERIALIZABLE"))
        with transaction.atomic():
            Product.objects.filter(name="written").count()
            Ticket.objects.filter(pk=other.pk).update(note="counted")

    def read_and_be_overtaken(instance: Any, **kwargs: Any) -> None:
        Product.objects.create(name="written", stock=Ticket.objects.filter(note="counted").count())
        Worker(skew).result()

    def call() -> Any:
        execute(OLD_SNAPSHOT.format(level="SERIALIZABLE"))
        return fresh(ticket).probe.go()

    with hooked(Transition("go", ["new"], "done", side_effects=[read_and_be_overtaken], failed_state="failed")):
        outcome = Worker(call).join()
        chain = moves(ticket)

    assert isinstance(outcome.error, TransitionTemporarilyUnavailable)
    assert (stored(ticket), chain) == ("new", [])
    assert not Product.objects.exists()


def test_an_old_snapshot_judges_and_numbers_by_the_newest_rows(ticket: Ticket) -> None:
    """
    MySQL's REPEATABLE READ shows a caller's transaction old rows: state and sequence are the newest all the same.
    """
    if connection.vendor != "mysql":
        pytest.skip("elsewhere an old snapshot fails, or there is none")

    def call() -> list[Any]:
        read_repeatably()
        with transaction.atomic():
            copy = fresh(ticket)
            for name in ("publish", "archive"):
                assert Worker(lambda name=name: getattr(fresh(ticket).process, name)()).result() is True
            seen_before = stored(ticket)
            return [seen_before, copy.process.archive(), copy.process.reopen(), copy.state]

    results = Worker(call).result()

    assert results == ["new", False, True, "new"]
    assert moves(ticket, "process") == [("new", "published"), ("published", "archived"), ("archived", "new")]
    assert list(ticket.process.history.values_list("sequence", flat=True)) == [1, 2, 3]


def test_an_old_snapshot_can_not_pass_for_the_expected_version(ticket: Ticket) -> None:
    """
    expected_version is compared with the newest version, not with the one an old snapshot shows.
    """
    if connection.vendor != "mysql":
        pytest.skip("elsewhere an old snapshot fails, or there is none")

    def call() -> Any:
        read_repeatably()
        with transaction.atomic():
            copy = fresh(ticket)
            assert copy.process.version == 0
            for name in ("publish", "reopen"):
                assert Worker(lambda name=name: getattr(fresh(ticket).process, name)()).result() is True
            return copy.process.publish(expected_version=0)

    outcome = Worker(call).join()

    assert getattr(outcome.error, "reason", None) == "stale_version"
    assert ticket.process.version == 2


@pytest.mark.parametrize("is_repeatable", [False, True])
def test_first_moves_of_neighbours_do_not_block_each_other(is_repeatable: bool) -> None:
    """
    Two new objects moved at once in open transactions do not deadlock on the gap where their history goes.
    """
    if connection.vendor != "mysql":
        pytest.skip("only InnoDB locks gaps")
    tickets = [Ticket.objects.create() for _ in range(2)]
    both_moved = threading.Barrier(2)

    def call(ticket: Ticket) -> Any:
        if is_repeatable:
            read_repeatably()
        with transaction.atomic():
            moved = ticket.probe.go()
            both_moved.wait(PATIENCE / 6)
            return moved

    with hooked(Transition("go", ["new"], "done")):
        workers = [Worker(lambda ticket=ticket: call(ticket)) for ticket in tickets]
        outcomes = [worker.join() for worker in workers]

    assert [(outcome.value, outcome.error) for outcome in outcomes] == [(True, None)] * 2
