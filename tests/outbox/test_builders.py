"""
Test functions that build payloads: what they see, what they are given, and what their answer or their failure does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_logic import Action, Transition
from django_logic.background import BackgroundTransition, run_available
from django_logic.bulk import bulk_transition
from django_logic.outbox import payload as described
from django_logic.outbox.models import OutboxDelivery, OutboxMessage
from tests.app.models import Ticket
from tests.flows import Bind, declare, moves, stored

pytestmark = pytest.mark.django_db(transaction=True)

Builder = Callable[..., Any]


def told() -> list[Any]:
    """
    Return the payloads of all messages in the order of their deliveries.
    """
    return [row.message.payload for row in OutboxDelivery.objects.select_related("message").order_by("id")]


def note(ticket: Ticket, **_keywords: Any) -> dict[str, Any]:
    """
    Tell the note of a ticket.
    """
    return {"note": ticket.note}


def broken(ticket: Ticket, **_keywords: Any) -> dict[str, Any]:
    """
    Fail to tell anything.
    """
    raise LookupError("no such note")


def test_builder_sees_the_row_and_not_a_stale_copy(bind: Bind) -> None:
    """
    What somebody wrote since the caller read its object is told, since a builder is asked under the lock.
    """
    bind(declare(Transition("open", ["new"], "opened", event=note)))
    stale = Ticket.objects.create(note="old")
    Ticket.objects.filter(pk=stale.pk).update(note="fresh")

    stale.flow.open()

    assert told() == [{"note": "fresh"}]


def test_builder_sees_what_side_effects_wrote(bind: Bind, ticket: Ticket) -> None:
    """
    A builder is asked after the side effects, and sees their work.
    """

    def write(ticket: Ticket, **_keywords: Any) -> None:
        ticket.note = "by a side effect"
        ticket.save(update_fields=["note"])

    bind(declare(Transition("open", ["new"], "opened", side_effects=[write], event=note)))

    ticket.flow.open()

    assert told() == [{"note": "by a side effect"}]


def test_builder_gets_keywords_of_hooks_and_the_default_payload(bind: Bind, ticket: Ticket, clerk: Any) -> None:
    """
    A builder gets what other hooks get, and beside it what would be told without it.
    """
    given: dict[str, Any] = {}

    def build(ticket: Ticket, **keywords: Any) -> Any:
        given.update(keywords)
        return keywords["payload"]

    bind(declare(Transition("open", ["new"], "opened", event=build)))

    ticket.flow.open(user=clerk, reason="asked", colour="red")

    assert (given["user"], given["colour"]) == (clerk, "red")
    assert (given["payload"]["from"], given["payload"]["to"]) == ("new", "opened")
    ((body,), message) = told(), OutboxMessage.objects.get()
    assert (body["actor"], body["reason"], body["sequence"]) == ("clerk", "asked", 1)
    assert (message.topic, message.schema) == ("ticket.opened", "")


def test_builder_may_tell_nothing_this_time(bind: Bind, ticket: Ticket) -> None:
    """
    None moves the object and its history, and leaves no message.
    """

    @described(topic="ticket.loud")
    def build(ticket: Ticket, volume: int, **_keywords: Any) -> dict[str, int] | None:
        return {"volume": volume} if volume > 5 else None

    bind(
        declare(
            Transition("whisper", ["new"], "heard", event=build),
            Transition("shout", ["heard"], "new", event=build),
            Action("hum", ["new"], event=build),
        )
    )

    ticket.flow.whisper(volume=1)
    ticket.flow.shout(volume=9)
    ticket.flow.hum(volume=2)

    assert moves(ticket) == [("new", "heard"), ("heard", "new")]
    assert list(OutboxMessage.objects.values_list("topic", "payload")) == [("ticket.loud", {"volume": 9})]
    assert OutboxDelivery.objects.count() == 1


@pytest.mark.parametrize("effects", [[], [note]], ids=["fast", "locked"])
def test_builder_that_raises_fails_the_move_like_a_side_effect(
    bind: Bind, ticket: Ticket, effects: list[Builder]
) -> None:
    """
    Its exception reaches the caller: nothing of the move is kept, failed_state is written and told, callbacks hear.
    """
    heard: list[tuple[str, str]] = []

    def hear(ticket: Ticket, exception: BaseException, **_keywords: Any) -> None:
        heard.append((ticket.state, str(exception)))

    opening = {"event": broken, "failed_state": "jammed", "failure_callbacks": [hear], "side_effects": effects}
    bind(declare(Transition("open", ["new"], "opened", **opening)))

    with pytest.raises(LookupError, match="no such note"):
        ticket.flow.open()

    assert (stored(ticket), moves(ticket)) == ("jammed", [("new", "jammed")])
    assert heard == [("jammed", "no such note")]
    assert list(OutboxMessage.objects.values_list("topic", flat=True)) == ["ticket.jammed"]


def test_builder_that_raises_without_a_failed_state_leaves_nothing(bind: Bind, ticket: Ticket) -> None:
    """
    Without failed_state the object is as it was, in memory too.
    """
    bind(declare(Transition("open", ["new"], "opened", event=broken)))

    with pytest.raises(LookupError):
        ticket.flow.open()

    assert (stored(ticket), ticket.state, moves(ticket), told()) == ("new", "new", [], [])


def test_builder_that_raises_in_the_background_fails_the_attempt(bind: Bind, ticket: Ticket) -> None:
    """
    An attempt whose builder raises counts as failed and leaves the busy state; the last one leads to failed_state.
    """
    sending = {"in_progress_state": "sending", "failed_state": "stopped", "max_errors": 1}
    bind(declare(BackgroundTransition("send", ["new"], "sent", event=broken, **sending)))

    ticket.flow.send()
    run_available()

    assert moves(ticket) == [("new", "sending"), ("sending", "stopped")]
    assert list(OutboxDelivery.objects.order_by("id").values_list("topic", flat=True)) == [
        "ticket.sending",
        "ticket.stopped",
    ]


def test_action_whose_builder_raises_is_undone(bind: Bind, ticket: Ticket) -> None:
    """
    What an action did goes with the event it could not tell.
    """

    def write(ticket: Ticket, **_keywords: Any) -> None:
        Ticket.objects.filter(pk=ticket.pk).update(note="written")

    bind(declare(Action("scribble", ["new"], side_effects=[write], event=broken)))

    with pytest.raises(LookupError):
        ticket.flow.scribble()

    assert (stored(ticket, "note"), told()) == ("", [])


def test_builder_is_asked_for_each_object_of_a_set(bind: Bind) -> None:
    """
    In a bulk move each object is told of by itself; the one whose builder raises stays, and the others move.
    """

    def build(ticket: Ticket, payload: dict[str, Any], **_keywords: Any) -> dict[str, Any] | None:
        if ticket.note == "broken":
            raise LookupError("no such note")
        return None if ticket.note == "quiet" else {"note": ticket.note, "sequence": payload["sequence"]}

    bind(declare(Transition("open", ["new"], "opened", event=build)))
    notes = ["a", "quiet", "broken", "b"]
    tickets = {note: Ticket.objects.create(note=note) for note in notes}

    result = bulk_transition(Ticket.objects.all(), "open", process_name="flow")

    assert told() == [{"note": "a", "sequence": 1}, {"note": "b", "sequence": 1}]
    assert {note: stored(one) for note, one in tickets.items()} == {**dict.fromkeys(notes, "opened"), "broken": "new"}
    assert (result.moved, list(result.errors)) == (3, [tickets["broken"].pk])
