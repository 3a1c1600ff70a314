"""
The kits of the background benchmark: what each installs and which apps it loads.
"""

from __future__ import annotations

from harness.catalogue import Kit

JOBS = "kits.background_jobs.apps.JobsConfig"

OURS = ("django_logic", "django_logic.background", JOBS, "kits.background_ours.apps.OursConfig")

KITS = (
    Kit(name="bg_ours", title="this library", module="background_ours", apps=OURS, has_library=True),
    Kit(
        name="bg_limit",
        title="pgbench with our statements",
        module="background_limit",
        apps=("django_logic", "django_logic.background", JOBS),
        has_library=True,
    ),
    Kit(
        name="upstream_0_17_2",
        title="published django-logic 0.17.2",
        module="background_upstream",
        apps=("django_logic", "django_logic.background", JOBS, "kits.background_upstream.apps.UpstreamConfig"),
        packages=("django-logic", "redis"),
        requirements=("django-logic==0.17.2", "redis"),
        needs_redis=True,
    ),
    # Unpinned on purpose: the newest release when the environment is built; --refresh builds it again.
    Kit(
        name="upstream_newest",
        title="published django-logic, newest",
        module="background_upstream",
        apps=("django_logic", JOBS, "kits.background_upstream.apps.UpstreamConfig"),
        packages=("django-logic", "redis"),
        requirements=("django-logic", "redis"),
        needs_redis=True,
    ),
    Kit(
        name="procrastinate",
        title="procrastinate",
        module="background_procrastinate",
        apps=("procrastinate.contrib.django", JOBS, "kits.background_procrastinate.apps.ProcrastinateKitConfig"),
        packages=("procrastinate",),
        requirements=("procrastinate[django]",),
    ),
    Kit(
        name="pgqueuer",
        title="pgqueuer",
        module="background_pgqueuer",
        apps=(JOBS,),
        packages=("pgqueuer", "asyncpg"),
        requirements=("pgqueuer[asyncpg,psycopg]",),
    ),
    Kit(
        name="tasks_db",
        title="django-tasks-db",
        module="background_tasks",
        apps=("django_tasks_db", JOBS),
        packages=("django-tasks-db", "django-tasks"),
        requirements=("django-tasks-db[compat]",),
    ),
)
