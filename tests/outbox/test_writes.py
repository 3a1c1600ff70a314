"""
Test that every kind of write tells exactly its events, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, connections
from django.db.models.signals import post_save

from django_logic import Action, Transition
from django_logic.background import BackgroundAction, BackgroundTransition, PermanentFailure, run_available
from django_logic.bulk import bulk_transition
from django_logic.exceptions import TransitionNotAllowed
from django_logic.models import AuditEntry, StatusChange
from django_logic.outbox.models import OutboxDelivery, OutboxMessage
from tests.app.models import Child, OrderProxy, Sale, SlugDocument, Ticket, UuidDocument
from tests.flows import Bind, declare
from tests.races.together import Worker

pytestmark = pytest.mark.django_db(transaction=True)


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
    The fast path, the locked path, the one through save(), a caller's transaction and what follows tell alike.
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


def test_what_moves_nothing_tells_nothing(bind: Bind, ticket: Ticket) -> None:
    """
    Duplicates, refusals, births and actions without event= leave no message.
    """
    bind(
        declare(
            Transition("open", ["new"], "opened", event=False), Action("ping", ["opened"]), record_initial_state=True
        )
    )
    Ticket.objects.create()
    ticket.flow.open()

    assert ticket.flow.open() is False
    ticket.flow.ping()
    with pytest.raises(TransitionNotAllowed):
        ticket.flow.nonsense_of_nobody()

    assert topics() == []


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
    The busy state, the target and failed_state are told by the transactions that write them, a retried attempt by none.
    """
    bind(
        declare(
            BackgroundTransition("send", ["new"], "sent", in_progress_state="sending", event="parcel.sent"),
            BackgroundTransition("lose", ["sent"], "lost", in_progress_state="losing", side_effects=[fail]),
            BackgroundTransition(
                "burn", ["kept"], "ash", in_progress_state="burning", failed_state="kept", side_effects=[give_up]
            ),
            BackgroundAction("ring", ["sent"], event="bell"),
        )
    )
    ticket.flow.send()
    assert topics() == ["ticket.sending"]
    run_available()
    ticket.refresh_from_db()
    ticket.flow.ring()
    run_available()
    assert topics() == ["ticket.sending", "parcel.sent", "bell"]

    ticket.flow.lose()
    run_available()
    other = Ticket.objects.create(state="kept")
    other.flow.burn()
    run_available()

    assert topics()[3:] == ["ticket.losing", "ticket.burning", "ticket.kept"]


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


TOLD = (("ticket.opened", 1), ("ticket.shut", 2))


def test_message_belongs_to_the_model_that_owns_the_column(bind: Bind) -> None:
    """
    Proxies and children tell as the owner, under the owner's key; keys of every kind are text in it.
    """
    bind(declare(Transition("go", ["draft"], "gone")), OrderProxy, "status")
    for model in (Child, UuidDocument, SlugDocument):
        bind(declare(Transition("go", ["new"], "gone")), model)
    objects = [
        OrderProxy.objects.create(),
        Child.objects.create(title="a"),
        UuidDocument.objects.create(),
        SlugDocument.objects.create(slug="a/b c"),
    ]

    for one in objects:
        one.flow.go()

    found = OutboxDelivery.objects.order_by("id").values_list("aggregate", "key", "topic")
    names = ("order", "base", "uuiddocument", "slugdocument")
    wanted = [(f"app.{name}", str(one.pk), f"{name}.gone") for name, one in zip(names, objects, strict=True)]
    assert list(found) == wanted


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


def test_messages_of_an_object_are_numbered_in_the_order_of_its_moves(bind: Bind, only_postgres: None) -> None:
    """
    Eight writers on four objects: ids of deliveries grow with the sequence, since they are given behind the row's lock.
    """
    bind(declare(Transition("turn", ["new"], "new")))
    tickets = [Ticket.objects.create() for _count in range(4)]

    def write() -> None:
        for _count in range(10):
            for ticket in tickets:
                Ticket.objects.get(pk=ticket.pk).flow.turn()

    writers = [Worker(write) for _count in range(8)]
    for writer in writers:
        writer.result()

    for ticket in tickets:
        rows = OutboxDelivery.objects.filter(key=str(ticket.pk)).order_by("id")
        assert list(rows.values_list("message__sequence", flat=True)) == list(range(1, 81))


def test_messages_without_a_relay_of_ours_are_inserted_and_never_updated(
    bind: Bind, ticket: Ticket, settings: Any, only_postgres: None
) -> None:
    """
    With relay none a move writes one message and no delivery, and nothing ever changes it. Source: debezium#2011.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_RELAY": "none"}
    bind(declare(Transition("open", ["new"], "opened"), Transition("shut", ["opened"], "shut", side_effects=[work])))
    with connection.cursor() as cursor:
        cursor.execute(WITNESS.format(table=OutboxMessage._meta.db_table))
    try:
        ticket.flow.open()
        ticket.flow.shut()

        assert OutboxMessage.objects.count() == 2
        assert OutboxDelivery.objects.count() == 0
    finally:
        with connections["default"].cursor() as cursor:
            cursor.execute("DROP FUNCTION refuse_update CASCADE")


#: Refuses every UPDATE of a table.
WITNESS = """
CREATE FUNCTION refuse_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'a message was updated'; END $$;
CREATE TRIGGER refuse_update BEFORE UPDATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION refuse_update();
"""
