"""
Test the rows that go with a set that moves at once: one statement for each kind, and what it can't say by the ORM.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_logic import Transition, extension
from django_logic.bulk import bulk_transition
from django_logic.extension import Row
from django_logic.outbox.builders import payload
from django_logic.outbox.models import OutboxDelivery, OutboxMessage
from tests.app.models import Ticket
from tests.flows import Bind, declare

pytestmark = pytest.mark.django_db(transaction=True)

#: What would break a document, a statement or its parameters where it is not quoted.
ODD = '50 % of "it" isn\'t \\ ü %(rows)s {}'
#: The same without a backslash, behind which a server reads what it likes: such a text may stand in the statement.
WRITTEN_OUT = ODD.replace("\\", "")
#: What differs from one event to the next.
OWN = {"id", "message_id", "key", "payload", "occurred_at", "created", "next_attempt_at"}
BASE = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)


def columns_of(model: Any, key: str) -> dict[str, Any]:
    """
    Return what the only row of a key says, but what is its own.
    """
    (found,) = model.objects.filter(key=key).values()
    return {name: value for name, value in found.items() if name not in OWN}


def test_set_tells_what_a_single_move_tells(bind: Bind, events: None) -> None:
    """
    The events of objects that move at once are those of the same moves one by one, whatever their texts hold.
    """
    bind(declare(Transition("open", ["new"], "opened", event=oddly)))
    alone, *together = [Ticket.objects.create() for _count in range(4)]

    alone.flow.open(actor=ODD, reason=ODD)
    tickets = Ticket.objects.filter(pk__in=[ticket.pk for ticket in together])
    bulk_transition(tickets, "open", process_name="flow", actor=ODD, reason=ODD)

    keys = [str(ticket.pk) for ticket in together]
    for model in (OutboxMessage, OutboxDelivery):
        assert [columns_of(model, str(alone.pk))] * 3 == [columns_of(model, key) for key in keys]
    assert {(ODD, WRITTEN_OUT)} == set(OutboxMessage.objects.values_list("topic", "schema"))
    own = {"ticket_id", "object_id", "occurred_at"}
    told = {message.key: message.payload for message in OutboxMessage.objects.all()}
    kept = [{name: value for name, value in told[key].items() if name not in own} for key in (str(alone.pk), *keys)]
    assert [kept[0]] * 4 == kept
    assert kept[0]["reason"] == ODD
    assert [ticket.pk for ticket in together] == [told[key]["ticket_id"] for key in keys]
    assert {(m.id, m.key) for m in OutboxMessage.objects.all()} == set(
        OutboxDelivery.objects.values_list("message_id", "key")
    )


def test_set_is_told_by_one_statement_for_each_kind_of_row(bind: Bind, events: None, only_postgres: None) -> None:
    """
    However many objects move at once, one statement inserts their messages and one their deliveries.
    """
    bind(declare(Transition("open", ["new"], "opened")))
    for _count in range(5):
        Ticket.objects.create()

    with CaptureQueriesContext(connection) as queries:
        bulk_transition(Ticket.objects.all(), "open", process_name="flow")

    inserts = [query["sql"] for query in queries if "JSON_TO_RECORDSET" in query["sql"]]
    assert len(inserts) == 2
    assert OutboxDelivery.objects.count() == 5


def after(key: Any) -> timedelta:
    """
    Return a time of its own for each key, however large the ids of this database are by now.
    """
    return timedelta(microseconds=int(key) % 1_000_000)


@payload(topic=ODD, schema=WRITTEN_OUT)
def oddly(ticket: Ticket, payload: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """
    Tell what is told by default, under texts that have to be quoted.
    """
    return payload


@pytest.fixture
def notes() -> Iterator[None]:
    """
    Let each move write a message of its own time, which no JSON says to the microsecond.
    """

    def note(move: Any) -> Iterator[Row]:
        values = {"topic": "noted", "key": move.key, "occurred_at": BASE + after(move.key)}
        yield Row(model=OutboxMessage, values=values)

    extension.register_contributor(note)
    yield
    extension.unregister(note)


def test_values_that_json_does_not_say_are_kept_exactly(bind: Bind, notes: None) -> None:
    """
    A row with times of its own is stored to the microsecond, with the defaults of what was left out.
    """
    bind(declare(Transition("open", ["new"], "opened", event=False)))
    tickets = [Ticket.objects.create() for _count in range(3)]

    bulk_transition(Ticket.objects.all(), "open", process_name="flow")

    noted = OutboxMessage.objects.filter(topic="noted")
    expected = {(str(one.pk), BASE + after(one.pk), "") for one in tickets}
    assert expected == set(noted.values_list("key", "occurred_at", "schema"))
