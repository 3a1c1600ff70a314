"""
Prove that a background action of a whole set is enqueued set by set, with the promises of single calls.
"""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_logic.background import run_available
from django_logic.background.models import TransitionMessage
from django_logic.bulk import bulk_transition
from django_logic.models import StatusChange
from tests.worker_app.models import Effect, Job

pytestmark = pytest.mark.django_db(transaction=True)


def test_set_is_enqueued_in_a_constant_number_of_statements() -> None:
    """
    Sixteen objects cost as many statements as four; each gets its own row, move and transition id.
    """
    counts = []
    for size in (4, 16):
        Job.objects.bulk_create([Job() for _ in range(size)])
        with CaptureQueriesContext(
            connection,
        ) as captured:
            result = bulk_transition(Job.objects.filter(state="new"), "quick", actor="import", reason="batch")
        counts.append(len(captured))
        assert result.moved == size

    assert counts[0] == counts[1]
    rows = TransitionMessage.objects.filter(kind="transition")
    recorded = StatusChange.objects.filter(action="quick", to_state="working")
    assert rows.count() == 20
    assert set(rows.values_list("instance_id", "transition_id")) == set(
        recorded.values_list("instance_id", "transition_id")
    )
    assert set(rows.values_list("actor_label", "reason")) == {("import", "batch")}
    assert run_available() == 40
    assert set(Job.objects.values_list("state", flat=True)) == {"done"}
    assert Effect.objects.count() == 20


def test_busy_and_foreign_objects_are_refused_with_their_codes() -> None:
    """
    An object with open work counts as in flight, one in another state by its code; the rest goes on.
    """
    busy, fresh, elsewhere = Job.objects.create(), Job.objects.create(), Job.objects.create(state="nowhere")
    busy.process.quick()

    result = bulk_transition(Job.objects.all(), "quick")

    assert (result.moved, result.duplicates) == (1, 0)
    assert result.refused == {"background_in_flight": [busy.pk], "source_state": [elsewhere.pk]}
    fresh.refresh_from_db()
    assert fresh.state == "working"
    assert TransitionMessage.objects.count() == 2


def test_action_without_a_busy_state_is_enqueued_without_a_move() -> None:
    """
    A background action changes no state, so the set gets rows and no history.
    """
    Job.objects.bulk_create([Job() for _ in range(3)])

    result = bulk_transition(Job.objects.all(), "act")

    assert result.moved == 3
    assert TransitionMessage.objects.open().count() == 3
    assert not StatusChange.objects.exists()
