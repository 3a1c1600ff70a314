"""
Prove that the promises hold together, under faults at moments nobody chose.
"""

from __future__ import annotations

import os
import random
import time

import pytest
from django.db.models import Sum

from django_logic.background.models import TransitionMessage
from tests.worker.altered import SHORT_LEASE, altered
from tests.worker.asking import is_all_done
from tests.worker.campaign import KINDS, CampaignProcess, Fleet, Monkey, ask_for_something
from tests.worker.fault_process import jobs_have
from tests.worker.harness import until, worker
from tests.worker.invariants import violations
from tests.worker_app.ledger import Ledger
from tests.worker_app.models import Job

#: Repeats the choices of an earlier run, though not the moments at which the machine carries them out.
SEED = "DL_CAMPAIGN_SEED"
JOBS, SECONDS, DRAINED_WITHIN = 60, 12.0, 22.0
#: What follows work waits so long for an object that is busy, and several may wait for one.
WAIT_FOR_A_BUSY_ONE = {"django_logic.background.durable.BUSY_PAUSE": 0.5}

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("only_postgres")]


def test_work_is_done_once_whatever_is_killed_at_whatever_moment(ledger: Ledger) -> None:
    """
    Children, parents, whole workers and sessions are killed for a while; then everything ends as if nothing had been.

    The lease is short: the campaign is not about waiting. Two attempts of one row may overlap, as where a session was
    ended under running code; only one of them may commit.
    """
    seed = int(os.environ.get(SEED) or random.SystemRandom().randrange(10**9))
    print(f"{SEED}={seed}")  # noqa: T201 (whoever sees this test fail needs it)
    chance = random.Random(seed)  # noqa: S311 (chance, not secrets)
    jobs = Job.objects.bulk_create([Job() for _ in range(JOBS)])
    settings = altered({**SHORT_LEASE, **WAIT_FOR_A_BUSY_ONE}, process=CampaignProcess)
    with jobs_have(CampaignProcess), Fleet(2, lambda: worker(concurrency=2, settings=settings)) as fleet:
        for job, (action, keywords) in zip(jobs, KINDS * (JOBS // len(KINDS) + 1), strict=False):
            getattr(job.process, action)(**keywords)
        accepted, monkey = JOBS, Monkey(chance, fleet)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            monkey.strike()
            accepted += sum(ask_for_something(chance, jobs) for _ in range(4))
            time.sleep(chance.uniform(0.02, 0.3))

        until(is_all_done, DRAINED_WITHIN)
        for each in fleet.workers:
            each.wait_ready().term()
        statuses = [each.wait() for each in fleet.workers]

        assert violations(jobs, accepted, ledger) == []
        assert statuses == [0, 0]
        assert min(monkey.deeds[deed] for deed in ("child", "session")) >= 3
        assert TransitionMessage.objects.aggregate(total=Sum("errors_count"))["total"] > 0
