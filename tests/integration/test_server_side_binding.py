"""
Prove that the writer's statements work when the driver binds and prepares on the server.
"""

from __future__ import annotations

import pytest
from django.test.utils import override_settings

from django_logic.bulk import BulkResult, bulk_transition
from django_logic.models import AuditEntry
from tests.app.hooked import moves, stored
from tests.app.models import Level, Sale, SlugDocument, Ticket, UuidDocument

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("bound_on_the_server")]


@override_settings(DJANGO_LOGIC={"AUDIT": "all"})
@pytest.mark.parametrize("model", [Ticket, UuidDocument, SlugDocument])
def test_move_and_its_rows_are_written(model: type[Ticket]) -> None:
    """
    State, history and a contributed row come from one prepared statement, again and again.
    """
    instance = model.objects.create(**({"slug": "a/b'"} if model is SlugDocument else {}))

    assert instance.process.publish(reason="it's 100 %", actor="web") is True
    assert instance.process.archive() is True

    assert stored(instance) == "archived"
    assert moves(instance, "process") == [("new", "published"), ("published", "archived")]
    assert list(AuditEntry.objects.order_by("id").values_list("sequence", "reason")) == [(1, "it's 100 %"), (2, "")]


def test_sets_move() -> None:
    """
    The statement for many objects binds its arrays too.
    """
    Level.objects.create()
    first, second = Sale.objects.create(), Sale.objects.create()

    assert bulk_transition(Level.objects.all(), "promote") == BulkResult(moved=1)
    assert bulk_transition(Sale.objects.all(), "to_placed") == BulkResult(moved=2)

    assert moves(first, "process") == moves(second, "process") == [("draft", "placed")]
