"""
Test what a move writes of its event: one message in its own transaction, never more, never less.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from django_logic import Action, Transition
from django_logic.bulk import bulk_transition
from django_logic.outbox import PayloadRefused, payload, relay, subscribe
from django_logic.outbox.models import OutboxDelivery, OutboxMessage
from django_logic.outbox.subscribers import forget
from tests.app.models import Loose, Ticket
from tests.flows import Bind, declare

pytestmark = pytest.mark.django_db(transaction=True)


def topics() -> list[str]:
    """
    Return the topics of all messages in the order of their deliveries.
    """
    return list(OutboxDelivery.objects.values_list("topic", flat=True))


def fail(ticket: Ticket, **_keywords: Any) -> None:
    """
    Fail as a side effect.
    """
    raise RuntimeError("no paper")


def test_move_writes_one_message_with_everything_a_reader_needs(bind: Bind, ticket: Ticket) -> None:
    """
    A move writes one message, whose payload tells the whole move and agrees with the history.
    """
    bind(declare(Transition("open", ["new"], "opened")))

    ticket.flow.open(actor="warehouse", reason="dispatched")

    message = OutboxMessage.objects.get()
    change = ticket.flow.history.get()
    assert ("app.ticket", str(ticket.pk), "ticket.opened", 1) == (
        message.aggregate,
        message.key,
        message.topic,
        message.sequence,
    )
    assert {
        "ticket_id": ticket.pk,
        "object_id": str(ticket.pk),
        "from": "new",
        "to": "opened",
        "action": "open",
        "sequence": 1,
        "actor": "warehouse",
        "reason": "dispatched",
        "occurred_at": change.occurred_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    } == message.payload


def test_move_to_no_state_is_told_as_json_says_it(bind: Bind) -> None:
    """
    A state that is NULL is null in the topic as in the payload.
    """
    bind(declare(Transition("clear", ["set"], None)), Loose)
    loose = Loose.objects.create(state="set")

    loose.flow.clear()

    message = OutboxMessage.objects.get()
    assert (message.topic, message.payload["to"]) == ("loose.null", None)


def test_relay_delivers_to_subscribers_once_in_order(bind: Bind, ticket: Ticket) -> None:
    """
    Draining calls each subscriber with each event of its topics, in the order of the moves.
    """
    bind(declare(Transition("open", ["new"], "opened"), Transition("shut", ["opened"], "shut")))
    seen: list[tuple[str, int | None]] = []

    @subscribe("ticket.*")
    def note(event: Any) -> None:
        seen.append((event.topic, event.sequence))

    ticket.flow.open()
    ticket.flow.shut()

    assert relay.drain("default") == 2
    assert relay.drain("default") == 0
    assert seen == [("ticket.opened", 1), ("ticket.shut", 2)]
    forget(note)


def test_rollback_leaves_no_message(bind: Bind, ticket: Ticket) -> None:
    """
    A move that the caller rolls back leaves no message.
    """
    bind(declare(Transition("open", ["new"], "opened")))

    with transaction.atomic():
        ticket.flow.open()
        transaction.set_rollback(True)

    assert topics() == []


def test_failure_tells_of_the_failed_state_only(bind: Bind, ticket: Ticket) -> None:
    """
    A move that fails tells of failed_state under its own topic, whatever event= says of the success.
    """
    bind(declare(Transition("open", ["new"], "opened", side_effects=[fail], failed_state="jammed", event="t.opened")))

    with pytest.raises(RuntimeError):
        ticket.flow.open()

    assert topics() == ["ticket.jammed"]


def test_event_names_another_topic_or_none_or_builds_the_payload(bind: Bind) -> None:
    """
    event= renames the topic, switches the event off, or is a function that builds what is told.
    """

    @payload(topic="ticket.printed", schema="https://schemas.example.com/printed/2")
    def printed(ticket: Ticket, payload: dict[str, Any], colour: str, **_keywords: Any) -> dict[str, Any]:
        return {"note": ticket.note, "colour": colour, "sequence": payload["sequence"]}

    bind(
        declare(
            Transition("open", ["new"], "opened", event="tickets.open"),
            Transition("shut", ["opened"], "shut", event=False),
            Transition("print", ["shut"], "printed", event=printed),
            Action("ping", ["printed"]),
            Action("pong", ["printed"], event=True),
        )
    )
    ticket = Ticket.objects.create(note="two copies")

    for name, keywords in (("open", {}), ("shut", {}), ("print", {"colour": "red"}), ("ping", {}), ("pong", {})):
        getattr(ticket.flow, name)(**keywords)

    assert topics() == ["tickets.open", "ticket.printed", "ticket.pong"]
    message = OutboxMessage.objects.get(topic="ticket.printed")
    assert message.payload == {"note": "two copies", "colour": "red", "sequence": 3}
    assert message.schema == "https://schemas.example.com/printed/2"


def test_payload_that_can_not_be_stored_refuses_the_move(bind: Bind, ticket: Ticket) -> None:
    """
    A payload that is no JSON fails the call, and nothing is written.
    """
    bind(declare(Transition("open", ["new"], "opened", event=lambda ticket, **_keywords: {"at": object()})))

    with pytest.raises(PayloadRefused, match="no JSON"):
        ticket.flow.open()

    ticket.refresh_from_db()
    assert ticket.state == "new"
    assert topics() == []


def test_bulk_move_tells_of_each_object(bind: Bind) -> None:
    """
    A set that moves at once writes one message for each object, each with its own sequence.
    """
    bind(declare(Transition("open", ["new"], "opened")))
    tickets = [Ticket.objects.create() for _count in range(3)]

    bulk_transition(Ticket.objects.all(), "open", process_name="flow")

    found = {message.key: message.payload["sequence"] for message in OutboxMessage.objects.all()}
    assert {str(ticket.pk): 1 for ticket in tickets} == found
