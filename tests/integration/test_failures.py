"""
Prove what happens when a hook raises, slot by slot, and that the caller hears the truth.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import connection

from django_logic import Action, Transition
from django_logic.exceptions import TransitionNotAllowed
from django_logic.models import AuditEntry
from tests.app.hooked import Boom, Diary, all_records, hooked, moves, stored
from tests.app.models import Product, Ticket

pytestmark = pytest.mark.django_db

#: For promises that show only where the call itself commits.
committing = pytest.mark.django_db(transaction=True)


@pytest.fixture
def diary() -> Diary:
    """
    Give an empty diary.
    """
    return Diary()


@pytest.fixture
def ticket() -> Ticket:
    """
    Give a saved object in its first state.
    """
    return Ticket.objects.create()


@pytest.mark.parametrize("slot", ["permissions", "conditions"])
def test_a_raising_guard_reaches_the_caller(slot: str, diary: Diary, ticket: Ticket, django_user_model: Any) -> None:
    """
    What a permission or a condition raises propagates; nothing runs and nothing is written.
    """
    user = django_user_model(username="kim")
    slots = {slot: [diary.hook(slot, Boom())], "side_effects": [diary.hook("effect")], "failed_state": "failed"}
    slots["failure_callbacks"] = [diary.hook("failure")]

    with hooked(Transition("go", ["new"], "done", **slots)), pytest.raises(Boom):
        ticket.probe.go(user=user)

    assert diary.names == [slot]
    assert stored(ticket) == ticket.state == "new"
    assert all_records() == 0


def test_permissions_are_not_asked_for_a_system_call(diary: Diary, ticket: Ticket) -> None:
    """
    Without a user no permission runs.
    """
    with hooked(Transition("go", ["new"], "done", permissions=[diary.hook("permission", answer=False)])):
        moved = ticket.probe.go(actor="warehouse")

    assert moved is True
    assert diary == []


def test_a_failing_side_effect_undoes_every_write(diary: Diary, ticket: Ticket) -> None:
    """
    The first side effect's writes are undone, the third never runs, the original error reaches the caller.
    """
    error = Boom("second")

    def write(instance: Any, **kwargs: Any) -> None:
        Product.objects.create(name="written")

    effects = [write, diary.hook("second", error), diary.hook("third")]
    slots = {"callbacks": [diary.hook("callback")], "failure_callbacks": [diary.hook("failure")]}
    with hooked(Transition("go", ["new"], "done", side_effects=effects, **slots)):
        with pytest.raises(Boom) as raised:
            ticket.probe.go()
        chain = moves(ticket)

    assert raised.value is error
    assert diary == [("second", "new"), ("failure", "new", error)]
    assert stored(ticket) == ticket.state == "new"
    assert chain == []
    assert not Product.objects.exists()


def test_after_a_failure_the_same_call_works_once(diary: Diary, ticket: Ticket) -> None:
    """
    A retry writes what the failed attempt wrote and lost, once.
    """
    troubles: list[BaseException] = [Boom()]

    def write(instance: Any, **kwargs: Any) -> None:
        Product.objects.create(name="written")
        if troubles:
            raise troubles.pop()

    with hooked(Transition("go", ["new"], "done", side_effects=[write])):
        with pytest.raises(Boom):
            ticket.probe.go()
        moved = ticket.probe.go()
        chain = moves(ticket)

    assert moved is True
    assert Product.objects.count() == 1
    assert chain == [("new", "done")]


@committing
def test_failed_state_is_written_with_its_record(diary: Diary, ticket: Ticket) -> None:
    """
    With failed_state the writes are undone, the failure is a move with a record, failure callbacks see it.
    """
    error = Boom()

    def write(instance: Any, **kwargs: Any) -> None:
        Product.objects.create(name="written")

    slots = {"side_effects": [write, diary.hook("effect", error)], "failed_state": "failed"}
    with hooked(Transition("go", ["new"], "done", failure_callbacks=[diary.hook("failure")], **slots)):
        with pytest.raises(Boom) as raised:
            ticket.probe.go(reason="checkout")
        chain = moves(ticket)
        record = ticket.probe.history.get()

    assert raised.value is error
    assert diary == [("effect", "new"), ("failure", "failed", error)]
    assert stored(ticket) == ticket.state == "failed"
    assert chain == [("new", "failed")]
    assert (record.action, record.reason, record.sequence) == ("go", "checkout", 1)
    assert not Product.objects.exists()


@committing
@pytest.mark.parametrize("lock", ["cache", "none"])
def test_without_a_transaction_committed_work_stays(lock: str, diary: Diary, ticket: Ticket, redis_cache: None) -> None:
    """
    With lock="cache" or "none" side effects run outside a transaction: what they committed stays.
    """
    seen = []

    def write(instance: Any, **kwargs: Any) -> None:
        seen.append(connection.in_atomic_block)
        Product.objects.create(name="written")

    slots: dict[str, Any] = {"side_effects": [write, diary.hook("effect", Boom())], "failed_state": "failed"}
    ways = {"cache": Transition("go", ["new"], "done", lock="cache", **slots)}
    ways["none"] = Action("go", ["new"], lock="none", **slots)
    with hooked(ways[lock]), pytest.raises(Boom):
        ticket.probe.go()

    assert seen == [False]
    assert Product.objects.count() == 1
    assert stored(ticket) == ticket.state == "failed"


def test_failure_callbacks_are_told_and_can_not_fail_the_call(
    diary: Diary, ticket: Ticket, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A failure callback that raises is logged, the next one runs, the caller gets the first error.
    """
    error = Boom("work")
    callbacks = [diary.hook("one", Boom("callback")), diary.hook("two")]

    way = Transition("go", ["new"], "done", side_effects=[diary.hook("effect", error)], failure_callbacks=callbacks)
    with hooked(way), pytest.raises(Boom) as raised:
        ticket.probe.go()

    assert raised.value is error
    assert diary.names == ["effect", "one", "two"]
    assert diary[1][2] is diary[2][2] is error
    assert any("one failed" in record.getMessage() and record.levelno == logging.ERROR for record in caplog.records)


@committing
def test_callbacks_can_not_fail_the_call(diary: Diary, ticket: Ticket, caplog: pytest.LogCaptureFixture) -> None:
    """
    A callback that raises is logged and swallowed, the next one runs, the object has moved.
    """
    way = Transition("go", ["new"], "done", callbacks=[diary.hook("one", Boom()), diary.hook("two")])
    with hooked(way):
        moved = ticket.probe.go()

    assert moved is True
    assert diary == [("one", "done"), ("two", "done")]
    assert stored(ticket) == "done"
    assert any("one failed" in record.getMessage() for record in caplog.records)


def test_an_exception_text_no_database_can_store_is_recorded(diary: Diary, ticket: Ticket, settings: Any) -> None:
    """
    NUL and lone surrogates in an exception or a reason spoil no record.
    """
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    odd = "a\x00b\ud800c"

    slots = {"side_effects": [diary.hook("effect", Boom(odd))], "failed_state": "failed"}
    with hooked(Transition("go", ["new"], "done", **slots)), pytest.raises(Boom):
        ticket.probe.go(reason=odd)

    entry = AuditEntry.objects.get()
    assert (entry.outcome, entry.to_state) == ("failed", "failed")
    assert "a" in entry.detail
    assert stored(ticket) == "failed"


def test_a_refusal_a_hook_passes_on_is_a_failure_of_this_call(diary: Diary, ticket: Ticket) -> None:
    """
    A side effect that is refused on another object fails this call: undone, failed_state, failure callbacks.
    """
    other = Ticket.objects.create(state="elsewhere")

    def drive(instance: Any, **kwargs: Any) -> None:
        if instance.pk == ticket.pk:
            other.probe.go()

    slots = {"side_effects": [drive], "failed_state": "failed", "failure_callbacks": [diary.hook("failure")]}
    with hooked(Transition("go", ["new"], "done", **slots)), pytest.raises(TransitionNotAllowed) as refused:
        ticket.probe.go()

    assert refused.value.current_state == "elsewhere"
    assert diary == [("failure", "failed", refused.value)]
    assert stored(ticket) == "failed"
