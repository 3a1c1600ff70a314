"""
Test that every kind of write tells exactly its events, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import transaction
from django.db.models.signals import post_save

from django_logic import Action, Transition
from django_logic.background import BackgroundAction, BackgroundTransition, PermanentFailure, run_available
from django_logic.background.models import TransitionMessage
from django_logic.bulk import bulk_transition
from django_logic.exceptions import TransitionNotAllowed
from django_logic.models import AuditEntry, StatusChange
from django_logic.outbox.models import OutboxDelivery, OutboxMessage
from tests.app.models import (
    Base,
    Child,
    Grade,
    Level,
    Loose,
    Numbered,
    OrderProxy,
    Sale,
    SlugDocument,
    Ticket,
    UuidDocument,
)
from tests.flows import Bind, declare

pytestmark = pytest.mark.django_db(transaction=True)

#: What a set is told of that is opened and shut.
TOLD = (("ticket.opened", 1), ("ticket.shut", 2))


def topics(using: str = "default") -> list[str]:
    """
    Return the topics of all messages in the order of their deliveries.
    """
    return list(OutboxDelivery.objects.using(using).order_by("id").values_list("topic", flat=True))


def work(ticket: Any, **_keywords: Any) -> None:
    """
    Do something under the lock.
    """


def fail(ticket: Any, **_keywords: Any) -> None:
    """
    Fail for now.
    """
    raise OSError("no paper")


def give_up(ticket: Any, **_keywords: Any) -> None:
    """
    Fail for good.
    """
    raise PermanentFailure("no paper will ever come")


@contextmanager
def listening(model: type[Any]) -> Iterator[None]:
    """
    Listen to saves of a model, so that writes go through ``save()``.
    """

    def hear(**_signal: Any) -> None: ...

    post_save.connect(hear, sender=model)
    yield
    post_save.disconnect(hear, sender=model)


def test_every_path_of_a_move_tells_once(bind: Bind) -> None:
    """
    The fast path, the locked path, the one through save() and what follows tell alike, numbered like the history.
    """
    bind(
        declare(
            Transition("a", ["new"], "a"),
            Transition("b", ["a"], "b", side_effects=[work]),
            Transition("c", ["b"], "c", next_transition="d"),
            Transition("d", ["c"], "d"),
        )
    )
    ticket = Ticket.objects.create()

    ticket.flow.a()
    ticket.flow.b()
    with listening(Ticket):
        ticket.flow.c()

    assert topics() == ["ticket.a", "ticket.b", "ticket.c", "ticket.d"]
    numbers = OutboxMessage.objects.order_by("sequence").values_list("sequence", flat=True)
    assert list(numbers) == list(StatusChange.objects.order_by("sequence").values_list("sequence", flat=True))


def test_what_moves_nothing_tells_nothing(bind: Bind) -> None:
    """
    Births, duplicates, refusals and actions without event= leave no message; event=False silences a move.
    """
    bind(
        declare(
            Transition("open", ["new"], "opened"),
            Transition("shut", ["opened"], "shut", conditions=[lambda ticket: False]),
            Transition("hide", ["opened"], "hidden", event=False),
            Action("ping", ["opened"], side_effects=[work]),
            record_initial_state=True,
        )
    )
    ticket = Ticket.objects.create()
    assert topics() == []

    ticket.flow.open()
    assert ticket.flow.open() is False
    ticket.flow.ping()
    with pytest.raises(TransitionNotAllowed):
        ticket.flow.shut()
    ticket.flow.hide()

    assert topics() == ["ticket.opened"]


def test_audit_of_everything_stands_beside_the_events(bind: Bind, ticket: Ticket, settings: Any) -> None:
    """
    With AUDIT="all" every call has its one entry, and the events are those of the moves alone.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    bind(
        declare(
            Transition("open", ["new"], "opened"),
            Transition("shut", ["opened"], "shut", conditions=[lambda ticket: False]),
            Action("ping", ["opened"]),
        )
    )

    ticket.flow.open()
    ticket.flow.open()
    ticket.flow.ping()
    with pytest.raises(TransitionNotAllowed):
        ticket.flow.shut()

    assert topics() == ["ticket.opened"]
    entries = AuditEntry.objects.order_by("id").values_list("action", "outcome")
    assert list(entries) == [("open", "moved"), ("open", "duplicate"), ("ping", "done"), ("shut", "refused")]


def test_nested_and_joined_transactions_tell_with_their_move(bind: Bind, ticket: Ticket) -> None:
    """
    In a caller's transaction the savepoint that is taken back takes its messages along, and no others.
    """
    bind(declare(Transition("open", ["new"], "opened"), Transition("shut", ["opened"], "shut", side_effects=[work])))

    with transaction.atomic():
        ticket.flow.open()
        with transaction.atomic():
            ticket.flow.shut()
            transaction.set_rollback(True)

    assert topics() == ["ticket.opened"]


@pytest.mark.parametrize("lock", ["row", "none", "cache"])
def test_action_tells_where_it_declares_so_and_is_audited_once(
    bind: Bind, ticket: Ticket, settings: Any, lock: str, request: pytest.FixtureRequest
) -> None:
    """
    An action with event= tells with no sequence, whatever it locks, and the audit has one entry of it.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    if lock == "cache":
        request.getfixturevalue("redis_cache")
    bind(declare(Action("ping", ["new"], event="ticket.pinged", side_effects=[work], lock=lock)))

    ticket.flow.ping(reason="hello")

    message = OutboxMessage.objects.get()
    assert (message.topic, message.sequence) == ("ticket.pinged", None)
    assert (message.payload["from"], message.payload["to"], message.payload["reason"]) == ("new", "new", "hello")
    assert AuditEntry.objects.count() == 1


def test_action_that_fails_tells_nothing(bind: Bind, ticket: Ticket) -> None:
    """
    What an action would tell goes with its work.
    """
    bind(declare(Action("ping", ["new"], event=True, side_effects=[fail])))

    with pytest.raises(OSError, match="no paper"):
        ticket.flow.ping()

    assert topics() == []


def test_background_work_tells_its_state_writes(bind: Bind, ticket: Ticket) -> None:
    """
    The busy state and the target are told by the transactions that write them, and an action when it is done.
    """
    bind(
        declare(
            BackgroundTransition("send", ["new"], "sent", in_progress_state="sending", event="parcel.sent"),
            BackgroundAction("ring", ["sent"], event="bell"),
            BackgroundAction("hum", ["sent"]),
        )
    )

    ticket.flow.send()
    accepted = topics()
    run_available()
    ticket.refresh_from_db()
    ticket.flow.ring()
    waiting = topics()
    run_available()
    ticket.flow.hum()
    run_available()

    assert accepted == ["ticket.sending"]
    assert waiting == ["ticket.sending", "parcel.sent"]
    assert topics() == ["ticket.sending", "parcel.sent", "bell"]
    assert list(OutboxMessage.objects.filter(topic="bell").values_list("sequence", flat=True)) == [None]


def test_background_work_that_fails_tells_of_the_failed_state_alone(bind: Bind, ticket: Ticket) -> None:
    """
    An attempt that is tried again tells nothing; the last one tells of failed_state under its own topic.
    """
    burning = {"in_progress_state": "burning", "failed_state": "kept", "event": "wood.burnt"}
    bind(
        declare(
            BackgroundTransition("lose", ["new"], "lost", in_progress_state="losing", side_effects=[fail]),
            BackgroundTransition("burn", ["new"], "ash", side_effects=[give_up], **burning),
        )
    )
    other = Ticket.objects.create()

    ticket.flow.lose()
    run_available()
    other.flow.burn()
    run_available()

    assert TransitionMessage.objects.get(instance_id=str(ticket.pk)).errors_count == 1
    assert topics() == ["ticket.losing", "ticket.burning", "ticket.kept"]


def test_cancelled_work_tells_of_the_failed_state(bind: Bind, ticket: Ticket) -> None:
    """
    A cancel tells of failed_state where there is one, and never of the target.
    """
    bind(
        declare(
            BackgroundTransition("send", ["new"], "sent", in_progress_state="sending", failed_state="stopped"),
            BackgroundTransition("keep", ["stopped"], "kept", in_progress_state="keeping"),
        )
    )

    ticket.flow.send()
    ticket.flow.cancel_background()
    ticket.refresh_from_db()
    ticket.flow.keep()
    ticket.flow.cancel_background()
    run_available()

    assert topics() == ["ticket.sending", "ticket.stopped", "ticket.keeping"]


def test_superseded_work_tells_nothing(bind: Bind, ticket: Ticket) -> None:
    """
    Work whose object somebody moved by hand ends as superseded, without a message.
    """
    bind(declare(BackgroundTransition("send", ["new"], "sent", in_progress_state="sending", failed_state="stopped")))

    ticket.flow.send()
    Ticket.objects.update(state="mended by hand")
    run_available()

    assert TransitionMessage.objects.get().outcome == "superseded"
    assert topics() == ["ticket.sending"]


def test_set_that_moves_at_once_tells_like_single_moves(bind: Bind) -> None:
    """
    A bulk move, set-based or row by row, writes one message for each object, in one transaction with its state.
    """
    bind(declare(Transition("open", ["new"], "opened"), Transition("shut", ["opened"], "shut", side_effects=[work])))
    tickets = [Ticket.objects.create() for _count in range(4)]

    for action in ("open", "shut"):
        bulk_transition(Ticket.objects.all(), action, process_name="flow")

    told = sorted(OutboxMessage.objects.values_list("key", "topic", "sequence"))
    wanted = [(str(one.pk), topic, number) for one in tickets for topic, number in TOLD]
    assert told == sorted(wanted)


def test_message_belongs_to_the_model_that_owns_the_column(bind: Bind) -> None:
    """
    Proxies and children tell as the owner, under the owner's key; keys of every kind are text in it.
    """
    bind(declare(Transition("go", ["draft"], "gone")), OrderProxy, "status")
    for model in (Child, Numbered, UuidDocument, SlugDocument):
        bind(declare(Transition("go", ["new"], "gone")), model)
    Base.objects.create()
    numbered = Numbered.objects.create(number=1_000)
    order, child, uuid = OrderProxy.objects.create(), Child.objects.create(), UuidDocument.objects.create()
    slug = SlugDocument.objects.create(slug="a/b c")

    for one in (order, child, numbered, uuid, slug):
        one.flow.go()

    found = OutboxDelivery.objects.order_by("id").values_list("aggregate", "key", "topic")
    assert list(found) == [
        ("app.order", str(order.pk), "order.gone"),
        ("app.base", str(child.pk), "base.gone"),
        ("app.base", str(numbered.base_id), "base.gone"),
        ("app.uuiddocument", str(uuid.pk), "uuiddocument.gone"),
        ("app.slugdocument", "a/b c", "slugdocument.gone"),
    ]
    assert OutboxMessage.objects.get(key="a/b c").payload["slugdocument_id"] == "a/b c"
    assert OutboxMessage.objects.get(aggregate="app.uuiddocument").payload["object_id"] == str(uuid.pk)


def test_states_that_are_numbers_or_nothing_are_told(bind: Bind) -> None:
    """
    Integer states name the topic and stay numbers in the payload, zero too; no state at all is null.
    """
    bind(declare(Transition("up", [Grade.NONE], Grade.GOLD), Transition("down", [Grade.GOLD], Grade.NONE)), Level)
    bind(declare(Transition("start", [None], "begun")), Loose)
    level, loose = Level.objects.create(), Loose.objects.create()

    level.flow.up()
    level.flow.down()
    loose.flow.start()

    told = [(one.topic, one.payload["from"], one.payload["to"]) for one in OutboxMessage.objects.order_by("topic")]
    assert told == [("level.0", 2, 0), ("level.2", 0, 2), ("loose.begun", None, "begun")]


def test_table_of_a_model_tells_by_its_states(db: None) -> None:
    """
    A move by target tells like a move by action.
    """
    sale = Sale.objects.create()

    sale.transition_to("placed", actor="web", reason="checkout")

    message = OutboxMessage.objects.get()
    assert (message.topic, message.payload["actor"], message.payload["reason"]) == ("sale.placed", "web", "checkout")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_message_is_written_where_its_object_is(bind: Bind) -> None:
    """
    State, history, message and delivery of an object on another database are on that one. Source: django-jaiminho#251.
    """
    bind(declare(Transition("open", ["new"], "opened")))
    ticket = Ticket.objects.using("other").create()

    ticket.flow.open()

    assert topics("other") == ["ticket.opened"]
    assert topics("default") == []
    assert OutboxMessage.objects.using("other").count() == StatusChange.objects.using("other").count() == 1
