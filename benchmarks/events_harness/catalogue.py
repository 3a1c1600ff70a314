"""
The kits of the benchmark of events: what each installs and which apps it loads.
"""

from __future__ import annotations

from harness.catalogue import Kit

JOBS = "kits.background_jobs.apps.JobsConfig"

KITS = (
    Kit(
        name="ev_ours",
        title="this library",
        module="events_ours",
        apps=("django_logic", "django_logic.outbox", "kits.events_ours.apps.OursConfig"),
        packages=("redis",),
        has_library=True,
    ),
    Kit(
        name="outbox_pattern",
        title="django-outbox-pattern",
        module="events_pattern",
        apps=("django_outbox_pattern", JOBS),
        packages=("django-outbox-pattern", "stomp.py"),
        requirements=("django-outbox-pattern",),
    ),
    Kit(
        name="reliable_outbox",
        title="django-reliable-outbox",
        module="events_reliable",
        apps=("reliable_outbox", JOBS, "kits.events_reliable.apps.ReliableConfig"),
        packages=("django-reliable-outbox", "redis"),
        requirements=("django-reliable-outbox[psycopg,redis]",),
        least_python=(3, 12),
    ),
)
