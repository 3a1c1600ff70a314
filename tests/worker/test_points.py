"""
Prove that test points do nothing unless asked, and then exactly what was asked.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from django_logic.background import testpoints
from tests.worker.gates import Gate
from tests.worker.harness import until
from tests.worker.processes import is_running

# Comes by a point, in as many forked processes as told, and prints how each of them ended.
COME_BY = """
import os, sys
from django_logic.background.testpoints import reach
children = []
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if not pid:
        reach("before_commit")
        os._exit(0)
    children.append(pid)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""


def come_by(plan: Any, processes: int = 1, *, session: bool = False) -> subprocess.Popen[str]:
    """
    Start a program whose forked children come by the point ``before_commit``.
    """
    environment = {**os.environ, "DL_TEST_POINTS": json.dumps(plan), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", COME_BY, str(processes)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=session)


def ends(plan: Any, processes: int = 1) -> list[int]:
    """
    Return how the processes ended, sorted.
    """
    text, _ = come_by(plan, processes).communicate(timeout=30)
    return sorted(json.loads(text))


def test_point_does_nothing_in_a_process_that_was_not_asked() -> None:
    """
    Without the variable no point is on, and reaching one has no effect.
    """
    plan = testpoints.read_plan(None)

    testpoints.reach("before_commit")

    assert plan is None
    assert testpoints.read_plan("") is None


@pytest.mark.parametrize(
    ("plan", "statuses"),
    [
        ({"after_claim": "kill"}, [0]),
        ({"before_commit": "kill"}, [-signal.SIGKILL]),
        ({"before_commit": "exit"}, [7]),
        ({"before_commit": "exit:3"}, [3]),
        ({"before_commit": "raise"}, [1]),
    ],
)
def test_process_ends_at_its_point_as_told(plan: dict[str, Any], statuses: list[int]) -> None:
    """
    A deed happens at the named point and at no other.
    """
    assert ends(plan) == statuses


def test_whole_group_is_killed_at_a_point() -> None:
    """
    ``kill_group`` takes the parent along, as the end of a container does.
    """
    with come_by({"before_commit": "kill_group"}, session=True) as program:
        status = program.wait(30)

    assert status == -signal.SIGKILL


@pytest.mark.parametrize(
    ("limits", "killed"), [({"times": 3}, 3), ({"skip": 2}, 6), ({"skip": 6, "times": 1}, 1), ({"skip": 8}, 0)]
)
def test_forked_processes_share_the_count(limits: dict[str, int], killed: int) -> None:
    """
    ``skip`` and ``times`` count all processes together, so exactly so many of eight are killed.
    """
    statuses = ends({"before_commit": {"do": "kill", **limits}}, processes=8)

    assert statuses == [-signal.SIGKILL] * killed + [0] * (8 - killed)


def test_process_waits_at_a_point_until_it_is_let_go(gate: Gate) -> None:
    """
    A paused process says who it is and where, and goes on when told, one at a time.
    """
    program = come_by({"before_commit": gate.deed}, processes=2)

    first, second = gate.arrival(), gate.arrival()
    gate.let_go()

    until(lambda: [is_running(arrival.pid) for arrival in (first, second)].count(False) == 1)
    assert {first.place, second.place} == {"before_commit"}
    assert program.poll() is None
    gate.let_go()
    assert json.loads(program.communicate(timeout=30)[0]) == [0, 0]


def test_gate_that_is_closed_stops_nobody(tmp_path: Path) -> None:
    """
    Who waits when a test ends goes on, and so does who comes later.
    """
    gate = Gate(tmp_path / "gate")
    waits = come_by({"before_commit": gate.deed})
    gate.arrival()

    gate.close()
    comes_later = come_by({"before_commit": gate.deed})

    assert [json.loads(each.communicate(timeout=30)[0]) for each in (waits, comes_later)] == [[0], [0]]


@pytest.mark.parametrize("plan", [{"after_lunch": "kill"}, {"after_claim": "sing"}])
def test_plan_with_an_unknown_word_is_refused(plan: dict[str, str]) -> None:
    """
    A point or a deed that does not exist fails the process at once, and names those that do.
    """
    with pytest.raises(ValueError, match="Use one of"):
        testpoints.read_plan(json.dumps(plan))


def test_point_that_is_off_costs_next_to_nothing() -> None:
    """
    A hundred thousand points that are off take less than a tenth of a second.
    """
    began = time.process_time()

    for _ in range(100_000):
        testpoints.reach("before_commit")

    assert time.process_time() - began < 0.1
