"""
Test what is left to those who read messages from the database's log: rows that are inserted and never touched again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from django_logic import Action, Transition
from django_logic.background import BackgroundTransition, run_available
from django_logic.bulk import bulk_transition
from django_logic.outbox import relay
from django_logic.outbox.models import OutboxDelivery, OutboxMessage
from tests.app.models import Ticket
from tests.flows import Bind, declare

pytestmark = pytest.mark.django_db(transaction=True)

#: Makes the server refuse every UPDATE of a table, whoever sends it, rows or none.
REFUSE = """
CREATE FUNCTION refuse_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE integrity_constraint_violation USING MESSAGE = 'a message was updated'; END $$;
CREATE TRIGGER refuse_update BEFORE UPDATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION refuse_update();
"""
ALLOW = "DROP FUNCTION refuse_update() CASCADE"


@pytest.fixture(autouse=True)
def nobody_relays(settings: Any) -> None:
    """
    Leave delivery to somebody else.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_RELAY": "none"}


@pytest.fixture
def updates_are_refused(only_postgres: None, transactional_db: None) -> Iterator[None]:
    """
    Let the server refuse every UPDATE of messages.
    """
    with connection.cursor() as cursor:
        cursor.execute(REFUSE.format(table=connection.ops.quote_name(OutboxMessage._meta.db_table)))
    yield
    with connection.cursor() as cursor:
        cursor.execute(ALLOW)


def live(ticket: Ticket) -> None:
    """
    Go through every kind of write once.
    """
    ticket.flow.open()
    ticket.flow.note()
    ticket.flow.shut()
    ticket.flow.send()
    run_available()
    bulk_transition(Ticket.objects.all(), "store", process_name="flow")


def work(ticket: Ticket, **_keywords: Any) -> None:
    """
    Do something under the lock.
    """


def flow() -> Any:
    """
    Declare one of every kind.
    """
    return declare(
        Transition("open", ["new"], "opened"),
        Action("note", ["opened"], event="ticket.noted"),
        Transition("shut", ["opened"], "shut", side_effects=[work]),
        BackgroundTransition("send", ["shut"], "sent", in_progress_state="sending"),
        Transition("store", ["sent"], "stored"),
    )


TOPICS = ["ticket.noted", *(f"ticket.{state}" for state in ("opened", "sending", "sent", "shut", "stored"))]


def test_move_writes_one_message_and_no_delivery(bind: Bind, ticket: Ticket) -> None:
    """
    Every write has its one message; nothing is put down for a relay, and none finds anything.
    """
    bind(flow())

    live(ticket)

    OutboxMessage.objects.create(topic="ticket.counted", payload={"count": 1})
    told = sorted(OutboxMessage.objects.values_list("topic", flat=True))
    assert told == sorted([*TOPICS, "ticket.counted"])
    assert OutboxDelivery.objects.count() == 0
    assert relay.drain("default") == 0


def test_messages_are_never_updated(bind: Bind, ticket: Ticket, updates_are_refused: None) -> None:
    """
    A whole run passes on a server that refuses every UPDATE of messages, as those who read its log do. Source:
    debezium#2011.
    """
    bind(flow())

    live(ticket)
    relay.drain("default")

    assert sorted(OutboxMessage.objects.values_list("topic", flat=True)) == TOPICS


def test_witness_sees_an_update(updates_are_refused: None) -> None:
    """
    The server of the test above does refuse.
    """
    OutboxMessage.objects.create(topic="ticket.counted")

    with pytest.raises(IntegrityError, match="a message was updated"), transaction.atomic(), connection.cursor() as sql:
        sql.execute(f"UPDATE {OutboxMessage._meta.db_table} SET aggregateid = aggregateid")
