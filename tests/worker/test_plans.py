"""
Prove that a claim costs the same whatever waits and whatever has ended: by the pages it touches, not by time.

The table holds 500,000 rows that have ended and 50,000 in their retry pause, all in the queue that is claimed from.
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
from tests.worker.looks import sql

pytestmark = [pytest.mark.usefixtures("tidy_table"), pytest.mark.django_db]

CLAIMABLE = "dl_bg_claimable"
INDEXES = frozenset({CLAIMABLE, "dl_bg_instance", f"{TABLE}_pkey"})
ENDED, PAUSED = 500_000, 50_000
#: Pages that finding nothing, and finding and writing one row, may touch in one lane.
LOOKING, TAKING = 8, 40
WORK = Lane("work", 0)


@pytest.fixture(scope="module")
def years_of_use(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """
    Fill the table, and empty it after the last test of the module.
    """
    with django_db_blocker.unblock():
        if connection.vendor != "postgresql":
            pytest.skip("the promise is made for PostgreSQL")
        fill(ENDED, name="ended", outcome="succeeded")
        fill(PAUSED, name="paused", due=600, errors_count=1, attempts_started=1)
        try:
            yield
        finally:
            run(f"TRUNCATE {TABLE}")


@pytest.fixture
def tidy_table(years_of_use: None, db: None) -> None:
    """
    Remove the rows that tests before this one took back: an index holds them until then.
    """
    sql(f"VACUUM (ANALYZE, INDEX_CLEANUP ON) {TABLE}")


def run(statement: str) -> None:
    """
    Run a statement in the session of the test.
    """
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.fixture
def forgotten(db: None) -> None:
    """
    Take away what the planner knows of the table, as before the first ANALYZE of a fast-growing one.
    """
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


class TestClaim:
    """
    Claims go to the row by one range of the index for each lane.
    """

    @pytest.mark.parametrize("statistics", ["known", "unknown"])
    def test_claim_finds_that_nothing_is_due(self, statistics: str, request: pytest.FixtureRequest) -> None:
        """
        50,000 paused rows ahead are not looked at.
        """
        if statistics == "unknown":
            request.getfixturevalue("forgotten")

        claimed, plan = plan_of_claim(Lanes([WORK]))

        assert claimed is None
        assert_by_index(plan, LOOKING)

    @pytest.mark.parametrize("statistics", ["known", "unknown"])
    def test_claim_takes_what_is_due_first(self, statistics: str, request: pytest.FixtureRequest) -> None:
        """
        One of a thousand due rows costs what one of one costs.
        """
        if statistics == "unknown":
            request.getfixturevalue("forgotten")
        fill(1000, name="due")

        claimed, plan = plan_of_claim(Lanes([WORK]))

        assert claimed is not None
        assert claimed.instance_id == "due-1"
        assert_by_index(plan, TAKING)

    def test_each_lane_costs_one_look(self) -> None:
        """
        With two queues and three priorities the most urgent due row is taken, and each other lane is looked into once.
        """
        for queue, priority in (("work", 5), ("side", 0), ("side", -5), ("side", 5)):
            fill(200, name=f"{queue}{priority}", queue_name=queue, priority=priority)
        lanes = lanes_of("default", ["work", "side"])

        claimed, plan = plan_of_claim(lanes)

        assert len(lanes.lanes) == 5
        assert claimed is not None
        assert (claimed.queue_name, claimed.priority, claimed.instance_id) == ("side", -5, "side-5-1")
        assert_by_index(plan, TAKING + 5 * 2 * LOOKING)

    def test_rows_behind_running_ones_are_stepped_over(self) -> None:
        """
        Sixteen objects whose first callback runs and whose next three are due: what is free behind them is claimed,
        at the price of those that wait and not of the backlog.
        """
        fill(16 * 4, name="busy", rows_of_one=4, kind="callback", hook_name="told")
        busy = TransitionMessage.objects.filter(kind="callback").order_by("instance_id", "id").distinct("instance_id")
        TransitionMessage.objects.filter(pk__in=list(busy.values_list("pk", flat=True))).update(run_at=FromNow(10))
        fill(100, name="free", due=-30, kind="callback", hook_name="told")

        claimed, plan = plan_of_claim(Lanes([WORK]))

        assert claimed is not None
        assert claimed.instance_id == "free-1"
        assert_by_index(plan, TAKING + 16 * 4 * 6)

    def test_many_callbacks_of_many_objects_cost_no_more_than_one(self) -> None:
        """
        Of 3,000 due callbacks the first is free, so the rest is not looked at.
        """
        fill(3000, name="told", rows_of_one=3, kind="callback", hook_name="told")

        claimed, plan = plan_of_claim(Lanes([WORK]))

        assert claimed is not None
        assert_by_index(plan, TAKING + LOOKING)

    def test_one_row_by_its_key(self) -> None:
        """
        What runs one row, or cancels it, finds it by its key.
        """
        fill(1, name="wanted")
        pk = TransitionMessage.objects.get(instance_id="wanted-1").pk

        (plan,) = plans_of(lambda: claim.take("default", pk))

        assert plan.scans == frozenset()
        assert plan.pages <= TAKING


class TestFloor:
    """
    Rows that are dead and can't be removed yet are passed by.
    """

    def test_second_claim_does_not_go_through_the_dead_rows_again(self) -> None:
        """
        5,000 rows that have ended since a transaction began that is still open: the first claim goes through them
        all, the next one begins where that one ended.
        """
        fill(5000, name="gone")
        TransitionMessage.objects.filter(instance_id__startswith="gone-").update(
            is_completed=True, outcome="succeeded", completed_at=FromNow()
        )
        fill(10, name="due", due=-60)
        lanes = Lanes([WORK])

        first, far = plan_of_claim(lanes)
        second, near = plan_of_claim(lanes)
        lanes.lift()
        third, again = plan_of_claim(lanes)

        assert {row.instance_id for row in (first, second, third) if row} == {"due-1"}
        assert_by_index(near, TAKING)
        assert far.pages > 5 * near.pages
        assert again.pages > 5 * near.pages


class TestLooking:
    """
    What an idle worker asks for is found by the same index.
    """

    def test_next_due_time_is_one_look_for_each_lane(self) -> None:
        """
        When a paused row comes due is found among 50,000 of them.
        """
        found = []

        (plan,) = plans_of(lambda: found.append(next_due("default", Lanes([WORK, Lane("side", 0)]))))

        assert found[0] is not None
        assert 0 < found[0] <= 601
        assert_by_index(plan, 2 * LOOKING)

    @pytest.mark.parametrize("queues", [["work", "side"], None])
    def test_queues_and_priorities_that_wait_are_found_by_steps(self, queues: list[str] | None) -> None:
        """
        One step for each queue and priority, not one for each row.
        """
        fill(500, name="side", queue_name="side", priority=3)
        found = []

        plans = plans_of(lambda: found.append(lanes_of("default", queues)))

        assert found[0].lanes == [WORK, Lane("side", 3)]
        for plan in plans:
            assert_by_index(plan, 4 * LOOKING)
