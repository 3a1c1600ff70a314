"""
Prove that what follows a transition happens, in order, whichever process is killed while it is delivered.
"""

from __future__ import annotations

import pytest

from django_logic.background.models import NEVER, TransitionMessage
from tests.worker.asking import ask
from tests.worker.deaths import Victim, outlive
from tests.worker.gates import Gate
from tests.worker.harness import open_rows, skip_pause, until, worker
from tests.worker.invariants import violations
from tests.worker_app.ledger import Ledger
from tests.worker_app.models import Job

#: The moments of a delivery: how many errors it leaves on its row when it ends there, and how often a hook has begun
#: by the end.
WINDOWS = {
    "before_callback": (1, 1),
    "after_claim": (1, 1),
    "after_stamp": (1, 1),
    "before_commit": (1, 2),
    "after_commit": (0, 1),
}
#: How often an attempt of the rows ahead comes by each point.
ONE_AHEAD = dict.fromkeys(WINDOWS, 1) | {"before_callback": 0}
TWO_AHEAD = dict.fromkeys(WINDOWS, 2) | {"before_callback": 1}
#: A transition that fails comes by the first two only.
FAILED_AHEAD = ONE_AHEAD | {"before_commit": 0, "after_commit": 0}

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]


def row_after(job: Job, kind: str) -> TransitionMessage:
    """
    Return the first row of a kind that follows what was asked of a job.
    """
    return TransitionMessage.objects.for_instance(job).filter(kind=kind).order_by("id")[:1].get()


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("victim", Victim)
def test_callback_is_delivered_whatever_dies_in_a_window(
    victim: Victim, window: str, gate: Gate, ledger: Ledger
) -> None:
    """
    A callback runs at least once, once more where it had run and not committed; the work itself is not repeated.
    """
    errors, runs = WINDOWS[window]
    job = ask("quick")

    outlive(victim, victim.dies_once(window, gate, ONE_AHEAD[window]), gate, [job])

    delivered = row_after(job, "callback")
    assert violations([job], accepted=1, ledger=ledger) == []
    assert (delivered.outcome, delivered.errors_count, ledger.count("told")) == ("succeeded", errors, runs)
    assert delivered.last_error_message.startswith(victim.mark if errors else "")
    assert ledger.count("write_effect") == 1


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("victim", Victim)
def test_next_transition_starts_once_whatever_dies_in_a_window(
    victim: Victim, window: str, gate: Gate, ledger: Ledger
) -> None:
    """
    The row of the next transition and the end of the row that asked for it are one commit.
    """
    errors, _ = WINDOWS[window]
    job = ask("follow")

    outlive(victim, victim.dies_once(window, gate, TWO_AHEAD[window]), gate, [job])

    delivered = row_after(job, "next")
    assert violations([job], accepted=1, ledger=ledger) == []
    assert (delivered.outcome, delivered.errors_count) == ("succeeded", errors)
    assert delivered.last_error_message.startswith(victim.mark if errors else "")
    assert (ledger.count("write_effect"), ledger.count("told")) == (2, 2)


@pytest.mark.parametrize("window", ["before_commit", "after_commit"])
def test_next_transition_that_moves_at_once_moves_once(window: str, gate: Gate, ledger: Ledger) -> None:
    """
    A plain transition that follows is part of the commit that ends the row which asked for it.
    """
    job = ask("start_over")

    outlive(Victim.BOTH, Victim.BOTH.dies_once(window, gate, TWO_AHEAD[window]), gate, [job])

    assert violations([job], accepted=1, ledger=ledger) == []
    assert [change.to_state for change in job.process.history.order_by("sequence")] == ["working", "done", "new"]


@pytest.mark.parametrize("window", WINDOWS)
def test_failure_callback_is_delivered_though_the_worker_dies_in_a_window(
    window: str, gate: Gate, ledger: Ledger
) -> None:
    """
    The failure stays as it is, and whoever is to be told of it is told.
    """
    errors, runs = WINDOWS[window]
    job = ask("refuse")

    outlive(Victim.BOTH, Victim.BOTH.dies_once(window, gate, FAILED_AHEAD[window]), gate, [job])

    delivered = row_after(job, "failure_callback")
    assert violations([job], accepted=1, ledger=ledger) == []
    assert (delivered.outcome, delivered.errors_count, ledger.count("warned")) == ("succeeded", errors, runs)
    assert (job.state, ledger.count("refusing")) == ("failed", 1)


@pytest.mark.parametrize("victim", [Victim.CHILD, Victim.BOTH])
def test_failed_callback_that_is_not_recorded_holds_back_the_next_one(
    victim: Victim, gate: Gate, ledger: Ledger
) -> None:
    """
    A callback fails and dies before it can say so: it runs again before the one behind it.
    """
    job = ask("fail_after")

    outlive(victim, victim.dies_once("before_accounting", gate), gate, [job])

    delivered = row_after(job, "callback")
    assert violations([job], accepted=1, ledger=ledger) == []
    assert (delivered.hook_name, delivered.outcome, delivered.errors_count) == ("failing", "succeeded", 1)
    assert [(entry.hook, entry.phase) for entry in ledger.entries() if entry.hook != "write_effect"] == [
        *(("failing", phase) for phase in ("start", "raised", "start", "stop")),
        *(("told", phase) for phase in ("start", "stop")),
    ]


def test_callback_whose_last_attempt_is_not_recorded_waits_for_an_operator(ledger: Ledger) -> None:
    """
    Its worker dies with each attempt: the row is spent, stays listed, and the callback behind it runs.
    """
    job = ask("crash_after", how="kill_group", times=99)

    for _ in range(3):
        with worker() as doomed:
            doomed.wait()
        skip_pause(job)
    with worker():
        until(lambda: {message.run_at for message in open_rows()} == {NEVER})
        until(lambda: ledger.count("told", "stop"))

    (spent,) = open_rows()
    assert (spent.hook_name, spent.attempts_started, spent.errors_count) == ("crashing", 3, 3)
    assert ledger.count("crashing") == 3
    assert len(violations([job], accepted=1)) == 1
