"""
Prove that what shows figures works with either app of the library, both, or none.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("prometheus_client", reason="django-logic[prometheus] is not installed")
pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

PROGRAM = """
import sys

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=sys.argv[1:],
)
django.setup()

from django.core.management import call_command
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from django_logic.contrib import opentelemetry, prometheus

call_command("migrate", verbosity=0)
registry, reader = CollectorRegistry(), InMemoryMetricReader()
prometheus.register(registry=registry)
provider = MeterProvider([reader])
opentelemetry.instrument(meter_provider=provider)
for line in generate_latest(registry).decode().splitlines():
    if line.startswith("# TYPE") or "readable" in line:
        print(line)
data = reader.get_metrics_data()
for resource in data.resource_metrics if data else ():
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            print("observed", metric.name)
provider.shutdown()
"""


@pytest.mark.parametrize(
    ("apps", "has_rows", "has_events"),
    [
        ((), False, False),
        (("django_logic.background",), True, False),
        (("django_logic.outbox",), False, True),
        (("django_logic.background", "django_logic.outbox"), True, True),
    ],
)
def test_figures_are_those_of_the_apps_that_are_installed(
    apps: tuple[str, ...], has_rows: bool, has_events: bool
) -> None:
    """
    A project without events, or without background work, has the figures of the other, and no error.
    """
    command = [sys.executable, "-W", "error", "-c", PROGRAM, "django_logic", *apps]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert 'django_logic_readable{database="default"} 1.0' in ended.stdout
    assert ("# TYPE django_logic_worker_up gauge" in ended.stdout) is has_rows
    assert ("# TYPE django_logic_outbox_attempts_total counter" in ended.stdout) is has_events
    assert ("observed django_logic.ended_rows" in ended.stdout) is has_rows
    assert ("observed django_logic.outbox.pending" in ended.stdout) is has_events
