"""
Prove by running it that only the writer sends statements that change a state or its history.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections

from django_logic.exceptions import TransitionNotAllowed
from django_logic.models import StatusChange
from tests.app.models import Item, Order, Parcel, Product, Sale, Saved, Ticket
from tests.architecture.source import ROOT

WATCHED = {model._meta.db_table for model in (Order, Parcel, Sale, Saved, Ticket, StatusChange)}
VERBS = ("INSERT", "UPDATE", "DELETE", "WITH", "REPLACE")


def issuer(frame: FrameType | None) -> str:
    """
    Name the innermost module of the library on the stack, or "" when there is none.
    """
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT):
            return ".".join(path.relative_to(ROOT).with_suffix("").parts)
        frame = frame.f_back
    return ""


@contextmanager
def watched_writes(alias: str) -> Iterator[list[tuple[str, str]]]:
    """
    Collect who sent each statement that changes a watched table, with the statement.
    """
    found: list[tuple[str, str]] = []

    def watch(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        # On SQLite an update of no row takes the write lock; it changes nothing.
        changes = sql.lstrip("( \n").upper().startswith(VERBS) and not sql.endswith("WHERE 0")
        if changes and any(table in sql for table in WATCHED):
            found.append((issuer(sys._getframe()), sql))
        return execute(sql, params, many, context)

    with ExitStack() as stack:
        stack.enter_context(connections[alias].execute_wrapper(watch))
        yield found


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
@pytest.mark.parametrize("alias", ["default", "other"])
def test_whole_scenario_writes_states_through_the_writer_only(alias: str) -> None:
    """
    Whatever a call is and however it ends, statements that change a state or its history come from one module.
    """
    clerk = User.objects.using(alias).create(username="clerk", is_staff=True)
    order = Order.objects.using(alias).create()
    Item.objects.using(alias).create(order=order, product=Product.objects.using(alias).create(stock=1))
    sale = Sale.objects.using(alias).create()
    parcel = Parcel.objects.using(alias).create()
    saved = Saved.objects.using(alias).create()

    with watched_writes(alias) as found:
        order.process.approve(user=clerk)  # type: ignore[attr-defined]
        duplicate = order.process.approve(user=clerk)  # type: ignore[attr-defined]
        sale.transition_to("placed", actor="warehouse")
        parcel.parcel.pack()  # type: ignore[attr-defined]
        parcel.payment.pay()  # type: ignore[attr-defined]
        saved.process.publish()  # type: ignore[attr-defined]
        with pytest.raises(TransitionNotAllowed):
            sale.transition_to("fulfilled")

    assert duplicate is False
    assert [who for who, _ in found if who.partition(".")[0] != "writer"] == []
    assert StatusChange.objects.using(alias).count() == 5


@pytest.mark.django_db
def test_watch_sees_a_write_that_goes_around_the_writer() -> None:
    """
    The watch itself works: a plain update of a state shows up, with no module of the library behind it.
    """
    order = Order.objects.create()

    with watched_writes("default") as found:
        Order.objects.filter(pk=order.pk).update(status="cancelled")

    assert [who for who, _ in found] == [""]
