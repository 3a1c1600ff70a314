"""
Prove background work on every alias, with every lock, and under the constraints of a project's own database.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.db import IntegrityError, connection, connections, transaction
from django.db.models.signals import post_save
from django.test.utils import CaptureQueriesContext

from django_logic import Transition
from django_logic.background import attempt, in_flight, run_available, sync_execution
from django_logic.background.models import TransitionMessage
from django_logic.exceptions import AlreadyInProgress, TransitionNotAllowed, TransitionTemporarilyUnavailable
from django_logic.locks import cache_key
from django_logic.models import AuditEntry, StatusChange
from django_logic.process import call_of
from django_logic.tree import tree_of
from tests.app.hooked import Boom, Diary, fresh, moves, receiver, stored
from tests.app.models import Product, Saved, Ticket, Voyage
from tests.background.flows import AT_ONCE, Flow, act, message, messages, new_ticket, run_out, work
from tests.races.together import Worker

pytestmark = pytest.mark.django_db(transaction=True)

both = pytest.mark.django_db(databases=["default", "other"], transaction=True)


@both
@pytest.mark.parametrize("model", [Ticket, Saved])
def test_everything_happens_on_the_instances_alias(flow: Flow, settings: Any, clerk: Any, model: Any) -> None:
    """
    Row, busy state, history, audit, callbacks and follow-ups live where the instance lives; nothing is on default.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    seen: list[Any] = []

    def note(instance: Any, user: Any, **keywords: Any) -> None:
        seen.append((instance._state.db, instance.state, user))

    here = model.objects.using("default").create(pk=7)
    there = model.objects.using("other").create(pk=7)
    flow(
        work(note, callbacks=[note], next_transition="on"),
        work(note, action="on", sources=["done"], target="over"),
        model=model,
    )

    there.flow.go(user=clerk)
    gates = (in_flight(here, "flow"), in_flight(there, "flow"))
    nothing = run_available()
    ran = run_available(using="other")

    assert (gates, nothing, ran) == ((False, True), 0, 4)
    assert (stored(here), stored(there)) == ("new", "over")
    assert seen == [("other", "busy", clerk), ("other", "done", clerk), ("other", "busy", clerk)]
    assert not TransitionMessage.objects.using("default").exists()
    assert [row.outcome for row in messages(there)] == ["succeeded"] * 4
    assert (StatusChange.objects.using("default").count(), StatusChange.objects.using("other").count()) == (0, 4)
    assert (AuditEntry.objects.using("default").count(), AuditEntry.objects.using("other").count()) == (0, 2)


@both
def test_attempt_of_another_alias_asks_default_for_nothing(flow: Flow) -> None:
    """
    An attempt on one database sends no statement to another.
    """
    there = Ticket.objects.using("other").create()
    flow(work(lambda instance, **kw: None, callbacks=[lambda instance, **kw: None]))

    with CaptureQueriesContext(connections["default"]) as on_default:
        there.flow.go()
        run_out("other")

    assert [query["sql"] for query in on_default] == []
    assert stored(there) == "done"


@both
def test_failed_attempt_is_undone_on_its_own_alias(flow: Flow) -> None:
    """
    An attempt undoes what it wrote on its object's database; another database keeps what was committed there.
    """

    def effect(instance: Any, **keywords: Any) -> None:
        Product.objects.using("other").create(name="effect")
        Product.objects.using("default").create(name="elsewhere")
        raise Boom

    there = Ticket.objects.using("other").create()
    flow(work(effect, max_errors=2, retry=AT_ONCE))
    there.flow.go()
    run_out("other")

    assert (stored(there), message(there).outcome, message(there).errors_count) == ("failed", "failed", 2)
    assert Product.objects.using("other").count() == 0
    assert Product.objects.using("default").count() == 2


@both
def test_reference_among_the_keywords_keeps_its_alias(flow: Flow, ticket: Ticket) -> None:
    """
    A model instance of another database comes back from that database.
    """
    seen: list[Any] = []
    far = Ticket.objects.using("other").create(pk=ticket.pk, note="far")
    flow(work(lambda instance, related, **kw: seen.append((related._state.db, related.note))))

    ticket.flow.go(related=far)
    run_available()

    assert seen == [("other", "far")]


@both
def test_sync_mode_runs_on_the_instances_alias(flow: Flow, diary: Diary) -> None:
    """
    Sync mode runs attempt and callbacks on the object's database.
    """
    there = Ticket.objects.using("other").create()
    flow(work(diary.hook("effect"), callbacks=[diary.hook("after")]))

    with sync_execution():
        there.flow.go()

    assert (there.state, stored(there), diary.names) == ("done", "done", ["effect", "after"])
    assert not TransitionMessage.objects.using("other").open().exists()


def voyage_work(*side_effects: Any, **options: Any) -> Any:
    """
    Declare background work along the edges that the database of a voyage allows.
    """
    return work(
        *side_effects,
        **{
            "sources": ["planned"],
            "in_progress_state": "under way",
            "target": "in port",
            "failed_state": "lost",
            **options,
        },
    )


def test_constraint_on_moves_lets_busy_target_and_failed_states_pass(flow: Flow) -> None:
    """
    A TransitionConstraint that lists the edges of a background transition passes each of its moves.
    """
    good, bad = Voyage.objects.create(), Voyage.objects.create()
    process = flow(
        voyage_work(),
        voyage_work(lambda instance, **kw: 1 / 0, action="sink", max_errors=1),
        model=Voyage,
        field="status",
    )

    good.flow.go()
    bad.flow.sink()
    run_available()

    assert moves(good, "flow") == [("planned", "under way"), ("under way", "in port")]
    assert moves(bad, "flow") == [("planned", "under way"), ("under way", "lost")]
    assert tree_of(process).edges == {
        ("planned", "under way"),
        ("under way", "in port"),
        ("under way", "lost"),
    }


def test_constraint_that_forbids_the_busy_state_refuses_the_call(flow: Flow) -> None:
    """
    Where the database does not know the edge to the busy state, the call fails with its error and leaves no row.
    """
    voyage = Voyage.objects.create()
    flow(voyage_work(in_progress_state="in port", target="under way"), model=Voyage, field="status")

    with pytest.raises(IntegrityError):
        voyage.flow.go()

    assert (messages(voyage), stored(voyage, "status"), voyage.status) == ([], "planned", "planned")


def test_constraint_that_forbids_the_target_fails_the_attempt(flow: Flow) -> None:
    """
    A move the database refuses counts as a failed attempt and ends in failed_state.
    """
    voyage = Voyage.objects.create()
    flow(voyage_work(target="cancelled", max_errors=2, retry=AT_ONCE), model=Voyage, field="status")

    voyage.flow.go()
    run_out()

    assert (message(voyage).outcome, message(voyage).errors_count) == ("failed", 2)
    assert stored(voyage, "status") == "lost"


def test_receivers_of_save_hear_both_moves(flow: Flow, ticket: Ticket) -> None:
    """
    post_save receivers of a model hear the busy move in the caller and the target in the attempt.
    """
    flow(work())
    with receiver(post_save, Ticket, lambda instance: None) as heard:
        ticket.flow.go()
        run_available()

    assert [(entry["state"], entry["update_fields"]) for entry in heard] == [
        ("busy", frozenset({"state"})),
        ("done", frozenset({"state"})),
    ]
    assert message(ticket).outcome == "succeeded"


def test_receiver_that_raises_fails_the_attempt(flow: Flow, ticket: Ticket) -> None:
    """
    What a receiver of save raises at the write counts as a failure; nothing is kept.
    """

    def refuse(instance: Any) -> None:
        if instance.state == "done":
            raise Boom("receiver")

    flow(work(callbacks=[lambda instance, **kw: None]))
    with receiver(post_save, Ticket, refuse):
        ticket.flow.go()
        run_available()

    assert (message(ticket).errors_count, stored(ticket), len(messages(ticket))) == (1, "busy", 1)


def test_foreign_move_of_a_listening_model_wins(flow: Flow) -> None:
    """
    A model that listens to save() notices a foreign move like any other: superseded, nothing kept.
    """
    saved = Saved.objects.create()

    def effect(instance: Any, **keywords: Any) -> None:
        Product.objects.create(name="effect")
        Saved.objects.filter(pk=instance.pk).update(state="moved")

    flow(work(effect), model=Saved)
    saved.flow.go()
    run_available()

    assert (message(saved).outcome, stored(saved), Product.objects.count()) == ("superseded", "busy", 0)


@pytest.fixture
def shared_cache(settings: Any, tmp_path: Path) -> None:
    """
    Make a cache that all processes share the default one.
    """
    backend = "django.core.cache.backends.filebased.FileBasedCache"
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": str(tmp_path)}}


@pytest.mark.usefixtures("shared_cache")
def test_cache_lock_is_given_back_by_the_call(flow: Flow, ticket: Ticket) -> None:
    """
    lock="cache" holds the state lock for the call alone: it is free while the row waits and the attempt runs.
    """
    held: list[Any] = []

    def look(instance: Any, **keywords: Any) -> None:
        held.append(cache.get(key))

    flow(work(look, lock="cache"))
    key = cache_key(call_of(ticket.flow, action="go", keywords={}))

    ticket.flow.go()
    held.append(cache.get(key))
    run_available()

    assert held == [None, None]
    assert (stored(ticket), moves(ticket, "flow")) == ("done", [("new", "busy"), ("busy", "done")])


@pytest.mark.usefixtures("shared_cache")
def test_cache_lock_held_elsewhere_refuses_the_call(flow: Flow, ticket: Ticket) -> None:
    """
    A held state lock refuses a background call as locked; no row is left, and the lock stays its holder's.
    """
    flow(work(lock="cache"))
    key = cache_key(call_of(ticket.flow, action="go", keywords={}))
    cache.add(key, "somebody")

    with pytest.raises(TransitionTemporarilyUnavailable) as refused:
        ticket.flow.go()

    assert (refused.value.reason, cache.get(key)) == ("locked", "somebody")
    assert (messages(ticket), stored(ticket)) == ([], "new")


@pytest.mark.usefixtures("shared_cache")
@pytest.mark.parametrize("is_action", [False, True])
def test_cache_lock_sees_an_open_row(flow: Flow, ticket: Ticket, is_action: bool) -> None:
    """
    lock="cache" passes the same gate: a second call is refused, a synchronous one too.
    """
    one = act(action="go", lock="cache") if is_action else work(lock="cache")
    flow(one, Transition("stop", ["new", "busy"], "stopped", lock="cache"))
    ticket.flow.go()

    with pytest.raises(AlreadyInProgress):
        fresh(ticket).flow.go()
    with pytest.raises(TransitionTemporarilyUnavailable):
        fresh(ticket).flow.stop()

    assert len(messages(ticket)) == 1


@pytest.mark.usefixtures("shared_cache")
def test_cache_lock_call_within_a_transaction_rolls_back_with_it(flow: Flow, ticket: Ticket) -> None:
    """
    lock="cache" in a caller's transaction: the row dies with the rollback, and the lock is free.
    """
    flow(work(lock="cache"))

    with transaction.atomic():
        ticket.flow.go()
        transaction.set_rollback(True)
    ticket.refresh_from_db()

    assert (messages(ticket), stored(ticket)) == ([], "new")
    assert ticket.flow.go() is True


@pytest.mark.usefixtures("shared_cache")
@pytest.mark.parametrize("busy", ["busy", None])
def test_move_past_the_cache_lock_is_noticed(flow: Flow, ticket: Ticket, busy: str | None) -> None:
    """
    A move that passes the cache lock between judging and saving the row is noticed: refused, nothing saved.
    """

    def move_away(instance: Any, **keywords: Any) -> bool:
        Worker(lambda: Ticket.objects.filter(pk=instance.pk).update(state="elsewhere")).result()
        return True

    flow(work(lock="cache", conditions=[move_away], in_progress_state=busy))

    with pytest.raises(TransitionNotAllowed) as refused:
        ticket.flow.go()

    assert refused.value.reason == "moved"
    assert (messages(ticket), stored(ticket), ticket.state) == ([], "elsewhere", "elsewhere")


@pytest.mark.usefixtures("shared_cache")
def test_row_saved_past_the_cache_lock_is_noticed(flow: Flow, ticket: Ticket) -> None:
    """
    A row that another declaration with a row lock saved meanwhile is seen before a second one is saved.
    """

    def overtake(instance: Any, **keywords: Any) -> bool:
        Worker(lambda: fresh(ticket).flow.act()).result()
        return True

    flow(work(lock="cache", conditions=[overtake], in_progress_state=None), act())

    with pytest.raises(AlreadyInProgress):
        ticket.flow.go()

    assert [row.transition_name for row in messages(ticket)] == ["act"]


def test_nested_transactions_of_the_caller_keep_row_and_state_together(flow: Flow, ticket: Ticket) -> None:
    """
    A savepoint that is rolled back after the call takes the row with it, and the next call in the transaction passes.
    """
    flow(work())
    with transaction.atomic():
        try:
            with transaction.atomic():
                ticket.flow.go()
                raise Boom
        except Boom:
            ticket.refresh_from_db()
        again = ticket.flow.go()

    assert (again, len(messages(ticket)), stored(ticket)) == (True, 1, "busy")


@pytest.mark.usefixtures("only_postgres")
def test_workers_are_told_once_for_each_queue_after_the_commit(flow: Flow) -> None:
    """
    One NOTIFY a transaction and queue, sent after the commit; a rollback sends none.
    """
    flow(work(queue="a"), work(action="other", queue="b"))
    tickets = [new_ticket() for _ in range(5)]
    listener = connection.copy()
    listener.connect()
    listener.connection.autocommit = True
    try:
        with listener.cursor() as cursor:
            cursor.execute("LISTEN django_logic_work")
        with transaction.atomic():
            tickets[0].flow.go()
            transaction.set_rollback(True)
        with transaction.atomic():
            for ticket in tickets[1:3]:
                ticket.flow.go()
            tickets[3].flow.other()
            early = [note.payload for note in listener.connection.notifies(timeout=0.2)]
        tickets[4].flow.go(delay=3600)
        told = [note.payload for note in listener.connection.notifies(timeout=1, stop_after=3)]
    finally:
        listener.close()

    assert early == []
    assert told == ["a", "b", "a"]


@pytest.mark.usefixtures("only_postgres")
def test_no_word_is_sent_within_the_transaction(flow: Flow, ticket: Ticket) -> None:
    """
    NOTIFY inside a transaction makes commits wait for each other, so it is sent once the commit is done.
    """
    flow(work())
    with CaptureQueriesContext(connection) as captured, transaction.atomic():
        ticket.flow.go()
        within = [query["sql"] for query in captured if "PG_NOTIFY" in query["sql"].upper()]

    after = [query["sql"] for query in captured if "PG_NOTIFY" in query["sql"].upper()]
    assert (within, len(after)) == ([], 1)


@pytest.mark.usefixtures("only_postgres")
def test_word_of_a_savepoint_that_is_rolled_back_does_not_silence_the_rest(flow: Flow, ticket: Ticket) -> None:
    """
    A call in a savepoint that is undone must not swallow the word for another call of the same queue.
    """
    other = new_ticket()
    flow(work(queue="a"))
    listener = connection.copy()
    listener.connect()
    listener.connection.autocommit = True
    try:
        with listener.cursor() as cursor:
            cursor.execute("LISTEN django_logic_work")
        with transaction.atomic():
            with transaction.atomic():
                ticket.flow.go()
                transaction.set_rollback(True)
            other.flow.go()
        told = [note.payload for note in listener.connection.notifies(timeout=1, stop_after=1)]
    finally:
        listener.close()

    assert told == ["a"]


def test_verify_finds_nothing_after_every_kind_of_end(flow: Flow, ticket: Ticket) -> None:
    """
    dl_verify agrees with what background work leaves behind: waiting, done, failed and cancelled objects.
    """
    flow(work(), work(lambda instance, **kw: 1 / 0, action="fail", max_errors=1))
    done, failed, cancelled = new_ticket(), new_ticket(), new_ticket()
    done.flow.go()
    failed.flow.fail()
    run_available()
    cancelled.flow.go()
    cancelled.flow.cancel_background()
    ticket.flow.go()

    call_command("dl_verify", stdout=io.StringIO())

    assert [stored(found) for found in (ticket, done, failed, cancelled)] == ["busy", "done", "failed", "failed"]


def test_attempt_run_takes_the_alias(flow: Flow, ticket: Ticket) -> None:
    """
    attempt.run() looks on default unless told otherwise.
    """
    flow(work())
    ticket.flow.go()

    assert attempt.run(message(ticket).pk, "default") is not None
    assert stored(ticket) == "done"
