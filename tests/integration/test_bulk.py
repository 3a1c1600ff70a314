"""
Prove that moving a whole queryset keeps the promises of a single call.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext, override_settings

from django_logic import Action, Transition, extension
from django_logic.bulk import BulkResult, bulk_transition
from django_logic.exceptions import UnknownAction
from django_logic.models import AuditEntry, StatusChange
from tests.app.hooked import hooked, moves, sequences, stored
from tests.app.models import Child, Level, Loose, Saved, SlugDocument, Ticket, UuidDocument

pytestmark = pytest.mark.django_db(transaction=True)

GO = Transition("go", ["new"], "done")
GO_ON = Transition("go", ["done"], "further")


def tickets(*states: str) -> list[Ticket]:
    """
    Create one ticket in each of these states.
    """
    return [Ticket.objects.create(state=state) for state in states]


def test_bulk_moves_counts_duplicates_and_refuses_by_code() -> None:
    """
    Each object gets what a single call would give it, and the database holds one history row for each that moved.
    """
    new, other, done, lost = tickets("new", "new", "done", "lost")

    with hooked(GO):
        result = bulk_transition(Ticket.objects.all(), "go", process_name="probe", actor="import", reason="night run")
        recorded = moves(new), moves(other), moves(done), moves(lost)

    assert result == BulkResult(moved=2, duplicates=1, refused={"source_state": [lost.pk]})
    assert [stored(ticket) for ticket in (new, other, done, lost)] == ["done", "done", "done", "lost"]
    assert recorded == ([("new", "done")], [("new", "done")], [], [])
    rows = list(StatusChange.objects.all())
    assert {(row.actor_label, row.reason, row.action) for row in rows} == {("import", "night run", "go")}
    assert len({row.transition_id for row in rows}) == 2
    assert len({row.root_id for row in rows}) == 1


def test_bulk_moves_every_kind_of_source_in_one_call() -> None:
    """
    Declarations that share the name move their own sources; sequences go on where each object was.
    """
    first, second = tickets("new", "new")
    with hooked(GO, GO_ON):
        first.probe.go()

        result = bulk_transition(Ticket.objects.all(), "go", process_name="probe")

        assert (moves(first), moves(second)) == ([("new", "done"), ("done", "further")], [("new", "done")])
        assert (sequences(first), sequences(second)) == ([1, 2], [1])
    assert result == BulkResult(moved=2)


def test_set_based_bulk_costs_a_constant_number_of_statements_a_chunk() -> None:
    """
    A thousand objects cost no more statements than ten.
    """

    def cost(count: int) -> int:
        Ticket.objects.all().delete()
        Ticket.objects.bulk_create([Ticket() for _ in range(count)])
        with hooked(GO), CaptureQueriesContext(connection) as captured:
            result = bulk_transition(Ticket.objects.all(), "go", process_name="probe")
        assert result.moved == count
        return len(captured)

    few, many = cost(10), cost(900)

    if connection.features.max_query_params is None:  # else the ORM splits its statements
        assert many == few
    if connection.vendor == "postgresql":
        # keys, BEGIN, lock and read, the one write, COMMIT
        assert many == 5


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 1000])
def test_chunks_cover_every_object_and_tell_their_progress(chunk_size: int) -> None:
    """
    Whatever the chunk, every object is moved once and the progress ends at the total.
    """
    tickets(*["new"] * 5)
    told: list[tuple[int, int]] = []

    with hooked(GO):
        result = bulk_transition(
            Ticket.objects.all(),
            "go",
            process_name="probe",
            chunk_size=chunk_size,
            progress=lambda done, total: told.append((done, total)),
        )

    assert result.moved == StatusChange.objects.count() == 5
    assert told[-1] == (5, 5)
    assert len(told) == -(-5 // chunk_size)


@pytest.mark.parametrize("chunk_size", [0, -1])
def test_chunk_size_below_one_is_refused(chunk_size: int) -> None:
    """
    A chunk of nothing would never end.
    """
    with hooked(GO), pytest.raises(ValueError, match="chunk_size must be at least 1"):
        bulk_transition(Ticket.objects.all(), "go", process_name="probe", chunk_size=chunk_size)


def test_unknown_action_moves_nothing_and_names_the_nearest() -> None:
    """
    A typo in the action is an UnknownAction before any row is touched.
    """
    (ticket,) = tickets("new")

    with hooked(GO), pytest.raises(UnknownAction, match="Did you mean 'go'"):
        bulk_transition(Ticket.objects.all(), "gow", process_name="probe")

    assert stored(ticket) == "new"


def test_keyword_of_the_engine_is_refused_before_anything_is_touched() -> None:
    """
    The calling rules of a single call hold.
    """
    (ticket,) = tickets("new")

    with hooked(GO), pytest.raises(TypeError, match="state="):
        bulk_transition(Ticket.objects.all(), "go", process_name="probe", state="done")

    assert stored(ticket) == "new"


def test_hooks_run_for_each_object_and_one_failure_stops_nobody() -> None:
    """
    With side effects each object has its own call: its error is told, its writes are undone, the others go on.
    """
    first, second, third = tickets("new", "new", "new")
    seen: list[Any] = []

    def work(instance: Ticket, **kwargs: Any) -> None:
        Ticket.objects.filter(pk=instance.pk).update(note="worked")
        if instance.pk == second.pk:
            raise RuntimeError("no paper")

    declared = Transition(
        "go", ["new"], "done", side_effects=[work], callbacks=[lambda instance, **kwargs: seen.append(instance.pk)]
    )
    with hooked(declared):
        result = bulk_transition(Ticket.objects.all(), "go", process_name="probe")

    assert (result.moved, result.refused, list(result.errors)) == (2, {}, [second.pk])
    assert [stored(ticket) for ticket in (first, second, third)] == ["done", "new", "done"]
    assert [stored(ticket, "note") for ticket in (first, second, third)] == ["worked", "", "worked"]
    assert seen == [first.pk, third.pk]


def test_failed_state_of_one_object_is_kept() -> None:
    """
    A failing object ends in its failed_state although the bulk goes on.
    """
    (ticket,) = tickets("new")

    def fail(instance: Ticket, **kwargs: Any) -> None:
        raise RuntimeError("no paper")

    with hooked(Transition("go", ["new"], "done", side_effects=[fail], failed_state="broken")):
        result = bulk_transition(Ticket.objects.all(), "go", process_name="probe")
        chain = moves(ticket)

    assert (stored(ticket), chain, list(result.errors)) == ("broken", [("new", "broken")], [ticket.pk])


def test_permissions_and_conditions_are_asked_for_each_object(django_user_model: Any) -> None:
    """
    Guards see each object; their refusals are sorted by code.
    """
    user = django_user_model.objects.create(username="kim")
    first, second, third = tickets("new", "new", "new")
    declared = Transition(
        "go",
        ["new"],
        "done",
        permissions=[lambda instance, user, **kwargs: instance.pk != first.pk],
        conditions=[lambda instance, **kwargs: instance.pk != second.pk],
    )

    with hooked(declared):
        result = bulk_transition(Ticket.objects.all(), "go", process_name="probe", user=user)

    assert result == BulkResult(moved=1, refused={"permission": [first.pk], "condition": [second.pk]})
    assert [stored(ticket) for ticket in (first, second, third)] == ["new", "new", "done"]


def test_actions_run_for_each_object() -> None:
    """
    An action has no state to write and still runs on every object.
    """
    first, second = tickets("new", "new")
    seen: list[Any] = []

    with hooked(Action("look", ["new"], side_effects=[lambda instance, **kwargs: seen.append(instance.pk)])):
        result = bulk_transition(Ticket.objects.all(), "look", process_name="probe")

    assert (result, seen) == (BulkResult(moved=2), [first.pk, second.pk])


@pytest.mark.parametrize("model", [UuidDocument, SlugDocument, Child, Saved])
def test_bulk_moves_models_of_every_key_and_kind(model: Any) -> None:
    """
    Keys of any type, children with a table of their own and models that listen to saves: same rows as single calls.
    """
    keys = [{"slug": "a/b"}, {"slug": "c'd"}] if model is SlugDocument else [{}, {}]
    for key in keys:
        model.objects.create(**key)

    result = bulk_transition(model.objects.all(), "publish")

    assert result == BulkResult(moved=2)
    for instance in model.objects.all():
        assert instance.state == "published"
        assert moves(instance, "process") == [("new", "published")]


def test_integer_and_null_states_move_in_bulk() -> None:
    """
    States need not be text: zero and the absence of a state are moved from as any other.
    """
    level, loose = Level.objects.create(), Loose.objects.create()

    assert bulk_transition(Level.objects.all(), "promote") == BulkResult(moved=1)
    with hooked(Transition("start", [None], "new"), model=Loose):
        assert bulk_transition(Loose.objects.all(), "start", process_name="probe") == BulkResult(moved=1)
        chain = moves(loose)

    assert (stored(level), moves(level, "process")) == (1, [("0", "1")])
    assert (stored(loose), chain) == ("new", [(None, "new")])


def test_time_columns_move_with_the_state() -> None:
    """
    ``auto_now`` columns of a set-based move are as fresh as the history.
    """
    loose = Loose.objects.create(state="new")
    before = stored(loose, "updated_at")

    with hooked(GO, model=Loose):
        bulk_transition(Loose.objects.all(), "go", process_name="probe")

    assert stored(loose, "updated_at") > before


def test_contributed_rows_come_with_every_object() -> None:
    """
    Rows that must agree with a move, audit among them, are written for each object with its own sequence.
    """
    first, second = tickets("new", "done")

    with override_settings(DJANGO_LOGIC={"AUDIT": "all"}), hooked(GO, Transition("go", ["done"], "new")):
        first.probe.go()
        result = bulk_transition(Ticket.objects.all(), "go", process_name="probe")

    assert result.moved == 2
    entries = AuditEntry.objects.order_by("id").values_list("instance_id", "outcome", "sequence")
    assert sorted(entries) == sorted(
        [(str(first.pk), "moved", 1), (str(first.pk), "moved", 2), (str(second.pk), "moved", 1)]
    )


def test_failing_contributor_moves_nothing() -> None:
    """
    A chunk is one transaction: what can't be contributed takes the states and the history with it.
    """
    (ticket,) = tickets("new")

    def refuse(move: Any) -> Any:
        raise RuntimeError("no outbox")

    extension.register_contributor(refuse)
    try:
        with hooked(GO), pytest.raises(RuntimeError, match="no outbox"):
            bulk_transition(Ticket.objects.all(), "go", process_name="probe")
    finally:
        extension.unregister(refuse)

    assert (stored(ticket), StatusChange.objects.count()) == ("new", 0)


def test_bulk_joins_the_callers_transaction() -> None:
    """
    What the caller rolls back, a bulk move inside it is part of.
    """
    (ticket,) = tickets("new")

    with hooked(GO), transaction.atomic():
        assert bulk_transition(Ticket.objects.all(), "go", process_name="probe").moved == 1
        transaction.set_rollback(True)

    assert (stored(ticket), StatusChange.objects.count()) == ("new", 0)


def test_filters_slices_and_joins_of_the_queryset_count() -> None:
    """
    Only the objects the queryset names are moved, each once.
    """
    first, second, third = tickets("new", "new", "new")

    with hooked(GO):
        assert bulk_transition(Ticket.objects.filter(pk=first.pk), "go", process_name="probe").moved == 1
        assert bulk_transition(Ticket.objects.order_by("-pk")[:1], "go", process_name="probe").moved == 1

    assert [stored(ticket) for ticket in (first, second, third)] == ["done", "new", "done"]


def test_two_bulk_calls_at_once_move_each_object_once() -> None:
    """
    Callers that race over the same rows share them out: as many history rows as moves, no error.
    """
    count, results = 300, []
    Ticket.objects.bulk_create([Ticket() for _ in range(count)])
    barrier = threading.Barrier(2)

    def run() -> None:
        try:
            barrier.wait(timeout=30)
            results.append(bulk_transition(Ticket.objects.all(), "go", process_name="probe", chunk_size=50))
        finally:
            connection.close()

    with hooked(GO):
        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)

    assert [result.refused for result in results] == [{}, {}]
    assert sum(result.moved for result in results) == count
    assert sum(result.duplicates for result in results) == count
    assert StatusChange.objects.count() == count
