"""
Prove that a write the database refuses leaves no half of a move behind, and hides no other error.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from django_logic import Transition
from django_logic.models import AuditEntry
from tests.app.hooked import Boom, Diary, all_records, fresh, hooked, moves, stored
from tests.app.models import Guarded, Item, Product, Ticket

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


def test_a_refused_target_is_a_failure_like_any_other(diary: Diary) -> None:
    """
    The database refuses the target: the work is undone, failed_state is written, the database's error is raised.
    """
    guarded = Guarded.objects.create()

    def write(instance: Any, **kwargs: Any) -> None:
        Product.objects.create(name="written")

    slots = {"side_effects": [write], "failed_state": "failed", "failure_callbacks": [diary.hook("failure")]}
    with hooked(Transition("go", ["new"], "forbidden", **slots), model=Guarded):
        with pytest.raises(DatabaseError) as refused:
            guarded.probe.go()
        chain = moves(guarded)

    assert diary == [("failure", "failed", refused.value)]
    assert guarded.state == stored(guarded) == "failed"
    assert chain == [("new", "failed")]
    assert not Product.objects.exists()


@committing
@pytest.mark.parametrize("has_work", [True, False])
def test_a_refused_write_leaves_memory_and_database_alone(has_work: bool, diary: Diary) -> None:
    """
    A write the database refuses is on neither side: state, time and history are as before.
    """
    guarded = Guarded.objects.create()
    before = fresh(guarded)
    effects = [diary.hook("effect")] if has_work else []

    way = Transition("go", ["new"], "forbidden", side_effects=effects, failure_callbacks=[diary.hook("failure")])
    with hooked(way, model=Guarded), pytest.raises(DatabaseError):
        guarded.probe.go()

    assert diary[-1][:2] == ("failure", "new")
    assert (guarded.state, guarded.updated_at) == (before.state, before.updated_at)
    assert (fresh(guarded).state, fresh(guarded).updated_at) == (before.state, before.updated_at)
    assert all_records() == 0


@pytest.mark.parametrize("inside_atomic", [pytest.param(False, marks=committing), True])
def test_a_refused_failed_state_never_replaces_the_error(
    inside_atomic: bool, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    """
    When failed_state is refused as well, the caller gets the side effect's error and the log the other.
    """
    guarded, error = Guarded.objects.create(), Boom("first")
    slots = {"side_effects": [diary.hook("effect", error)], "failed_state": "forbidden too"}

    with hooked(Transition("go", ["new"], "done", failure_callbacks=[diary.hook("failure")], **slots), model=Guarded):
        if inside_atomic:
            with transaction.atomic():
                with pytest.raises(Boom) as raised:
                    guarded.probe.go()
                Guarded.objects.filter(pk=guarded.pk).update(note="usable")
        else:
            with pytest.raises(Boom) as raised:
                guarded.probe.go()

    assert raised.value is error
    assert diary[-1] == ("failure", "new", error)
    assert guarded.state == stored(guarded) == "new"
    assert all_records() == 0
    assert any("was not written" in record.getMessage() for record in caplog.records)
    assert not inside_atomic or stored(guarded, "note") == "usable"


@committing
def test_the_log_and_the_audit_claim_no_move_that_a_failed_commit_undid(
    ticket: Ticket, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """
    When the commit itself fails, nothing says that the object is in its target.
    """
    if connection.vendor == "mysql":
        pytest.skip("InnoDB checks foreign keys at once")
    settings.DJANGO_LOGIC = {"AUDIT": "all"}
    caplog.set_level(logging.INFO, "django-logic.transition")

    def break_at_commit(instance: Any, **kwargs: Any) -> None:
        Item.objects.create(order_id=10**6, product_id=10**6)

    with hooked(Transition("go", ["new"], "done", side_effects=[break_at_commit])), pytest.raises(DatabaseError):
        ticket.probe.go()

    entry = AuditEntry.objects.get()
    assert (entry.outcome, entry.to_state) == ("failed", None)
    assert not any("now done" in record.getMessage() for record in caplog.records)
    assert ticket.state == stored(ticket) == "new"
