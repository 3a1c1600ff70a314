"""
Prove that a claim costs the same whatever waits and whatever has ended: by the pages it touches, not by time.

The table holds 500,000 rows that have ended and 50,000 in their retry pause. Everything is there before the first test,
and tests only claim: rows that a test takes back would stay in the index for the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from django_logic.background import claim
from django_logic.background.lanes import Lane, Lanes, lanes_of, next_due
from django_logic.background.models import TransitionMessage
from django_logic.clock import FromNow
from tests.worker.backlog import TABLE, Plan, fill, plans_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("years_of_use")]

CLAIMABLE, ABOUT = "dl_bg_claimable", "dl_bg_instance"
INDEXES = frozenset({CLAIMABLE, ABOUT, f"{TABLE}_pkey"})
#: Pages that may be touched by a look into a lane where nothing is due, by locking a lane's first row, and by the claim
#: of one row, which writes it and its place in each index.
LOOKING, LOCKING, TAKING = 8, 16, 40
#: How many objects have a callback that runs, and how many more wait behind it.
RUNNING, BEHIND = 16, 3


@pytest.fixture(scope="module")
def years_of_use(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """
    Fill the table, and empty it after the last test of the module.
    """
    with django_db_blocker.unblock():
        if connection.vendor != "postgresql":
            pytest.skip("the promise is made for PostgreSQL")
        run(f"ALTER TABLE {TABLE} SET UNLOGGED")
        (definition,) = run("SELECT indexdef FROM pg_indexes WHERE indexname = %s", ABOUT)
        # It is made afterwards, in one go: half of the time.
        run(f"DROP INDEX {ABOUT}")
        try:
            fill(500_000, name="ended", outcome="succeeded")
            fill_what_is_open()
            run(definition)
            run(f"VACUUM ANALYZE {TABLE}")
            yield
        finally:
            run(f"TRUNCATE {TABLE}")
            run(f"ALTER TABLE {TABLE} SET LOGGED")
            run(f"DROP INDEX IF EXISTS {ABOUT}")
            run(definition)


def fill_what_is_open() -> None:
    """
    Make the queues that tests claim from: ``idle``, ``work``, ``side``, ``busy`` and ``told``.
    """
    for queue in ("idle", "work"):
        fill(25_000, name=f"{queue}-paused", queue_name=queue, due=600, errors_count=1, attempts_started=1)
    fill(1000, name="work", queue_name="work")
    for priority in (-5, 0, 5):
        fill(200, name=f"side{priority}", queue_name="side", priority=priority)
    callback: dict[str, Any] = {"kind": "callback", "hook_name": "told"}
    fill(RUNNING * (1 + BEHIND), name="busy", queue_name="busy", rows_of_one=1 + BEHIND, **callback)
    callbacks = TransitionMessage.objects.filter(queue_name="busy").order_by("instance_id", "id")
    firsts = list(callbacks.distinct("instance_id").values_list("pk", flat=True))
    TransitionMessage.objects.filter(pk__in=firsts).update(run_at=FromNow(3600))
    fill(100, name="free", queue_name="busy", due=-30, **callback)
    fill(3000, name="told", queue_name="told", rows_of_one=3, **callback)


def run(statement: str, *parameters: Any) -> Any:
    """
    Run a statement in the session of the test; return its first row.
    """
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchone() if cursor.description else None


@pytest.fixture(params=["known", "unknown"])
def statistics(request: pytest.FixtureRequest, db: None) -> None:
    """
    Leave what the planner knows of the table, or take it away, as before the first ANALYZE of a new one.
    """
    if request.param == "unknown":
        run(f"DELETE FROM pg_statistic WHERE starelid = '{TABLE}'::regclass")
        run(f"UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid = '{TABLE}'::regclass")


def plan_of_claim(lanes: Lanes) -> tuple[TransitionMessage | None, Plan]:
    """
    Claim, undo it, and return what was claimed and how.
    """
    claimed = []
    (plan,) = plans_of(lambda: claimed.append(claim.take_next("default", lanes)))
    return claimed[0], plan


def assert_by_index(plan: Plan, pages: int) -> None:
    """
    Assert that a plan goes by the claim's index, reads no whole table, and touches few pages.
    """
    assert CLAIMABLE in plan.indexes
    assert plan.indexes <= INDEXES
    assert plan.scans == frozenset()
    assert plan.pages <= pages, plan


@pytest.mark.usefixtures("statistics")
class TestClaim:
    """
    Claims go to the row by one range of the index for each lane, whatever the planner knows.
    """

    def test_claim_finds_that_nothing_is_due(self) -> None:
        """
        Thousands of paused rows are not looked at.
        """
        claimed, plan = plan_of_claim(Lanes([Lane("idle", 0)]))

        assert claimed is None
        assert_by_index(plan, LOOKING)

    def test_claim_takes_what_is_due_first(self) -> None:
        """
        The first of a thousand due rows costs what a row alone costs.
        """
        claimed, plan = plan_of_claim(Lanes([Lane("work", 0)]))

        assert claimed is not None
        assert claimed.instance_id == "work-1"
        assert_by_index(plan, TAKING)

    def test_each_lane_costs_one_look(self) -> None:
        """
        With three queues and three priorities the most urgent due row is taken, and each lane is looked into once.
        """
        lanes = lanes_of("default", ["work", "side", "idle"])

        claimed, plan = plan_of_claim(lanes)

        assert len(lanes.lanes) == 5
        assert claimed is not None
        assert (claimed.queue_name, claimed.priority, claimed.instance_id) == ("side", -5, "side-5-1")
        assert_by_index(plan, TAKING + 4 * LOCKING + LOOKING)

    def test_rows_behind_running_ones_are_stepped_over(self) -> None:
        """
        What is free behind callbacks that wait for one that runs is claimed, at the price of those that wait.
        """
        claimed, plan = plan_of_claim(Lanes([Lane("busy", 0)]))

        assert claimed is not None
        assert claimed.instance_id.startswith("free-")
        assert_by_index(plan, TAKING + RUNNING * BEHIND * LOOKING)

    def test_many_callbacks_of_many_objects_cost_no_more_than_one(self) -> None:
        """
        Of 3,000 due callbacks the first is free, so the rest is not looked at.
        """
        claimed, plan = plan_of_claim(Lanes([Lane("told", 0)]))

        assert claimed is not None
        assert_by_index(plan, TAKING + LOOKING)

    def test_row_is_claimed_by_its_key(self) -> None:
        """
        What runs or cancels one row reads no other.
        """
        pk = TransitionMessage.objects.get(instance_id="work-500").pk

        (plan,) = plans_of(lambda: claim.take("default", pk))

        assert plan.indexes <= INDEXES
        assert plan.scans == frozenset()
        assert plan.pages <= TAKING

    def test_next_due_time_is_one_look_for_each_lane(self) -> None:
        """
        When the first of thousands of paused rows comes due is found without the others.
        """
        found = []

        (plan,) = plans_of(lambda: found.append(next_due("default", Lanes([Lane("idle", 0), Lane("work", 0)]))))

        assert found[0] is not None
        assert 0 < found[0] <= 601
        assert_by_index(plan, 2 * LOOKING)

    @pytest.mark.parametrize(("queues", "count"), [(["work", "side"], 4), (None, 7)])
    def test_queues_and_priorities_that_wait_are_found_by_steps(self, queues: list[str] | None, count: int) -> None:
        """
        One step for each queue and priority, not one for each row.
        """
        found = []

        plans = plans_of(lambda: found.append(lanes_of("default", queues)))

        assert len(found[0].lanes) == count
        for plan in plans:
            assert_by_index(plan, (count + 5) * LOOKING)


def test_claim_does_not_go_through_dead_rows_again() -> None:
    """
    Of 5,000 rows that have ended while a transaction is open that stops their removal, this one: the first claim goes
    through all, the next one begins where that one ended, until the floor is lifted.
    """
    fill(5000, name="dead", queue_name="dead")
    TransitionMessage.objects.filter(queue_name="dead").update(
        is_completed=True, outcome="succeeded", completed_at=FromNow()
    )
    fill(10, name="alive", queue_name="dead", due=-60)
    lanes = Lanes([Lane("dead", 0)])

    first, far = plan_of_claim(lanes)
    second, near = plan_of_claim(lanes)
    lanes.lift()
    third, again = plan_of_claim(lanes)

    assert {row.instance_id for row in (first, second, third) if row} == {"alive-1"}
    assert_by_index(near, TAKING)
    assert min(far.pages, again.pages) > 10 * near.pages
