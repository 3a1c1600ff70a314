"""
Prove what Prometheus gets when it scrapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_logic.background import run_available
from tests.app.models import Ticket
from tests.background.flows import Flow, new_ticket, work
from tests.background.onlookers import TABLE, enter_worker

prometheus_client = pytest.importorskip("prometheus_client", reason="django-logic[prometheus] is not installed")
prometheus: Any = pytest.importorskip("django_logic.contrib.prometheus")

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def registry() -> Any:
    """
    Give a registry of our own.
    """
    return prometheus_client.CollectorRegistry()


def scrape(registry: Any) -> dict[str, float]:
    """
    Return the lines of an exposition without comments, by name and labels.
    """
    lines = prometheus_client.generate_latest(registry).decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def test_scrape_tells_rows_reasons_outcomes_and_workers(flow: Flow, registry: Any) -> None:
    """
    Every figure of a database is a series with its labels.
    """
    flow(work(queue="a"))
    new_ticket().flow.go()
    run_available()
    for _ in range(2):
        new_ticket().flow.go()
    enter_worker("a", name="left", is_listening=False, claim_ms=2.0)
    prometheus.register(registry=registry)

    found = scrape(registry)

    base = 'database="default"'
    worker = f'{{{base},host="h1",worker="left"}}'
    assert found[f"django_logic_readable{{{base}}}"] == 1
    assert found[f'django_logic_open_rows{{{base},queue="a",reason="claimable_now"}}'] == 1
    assert found[f'django_logic_open_rows{{{base},queue="a",reason="waiting_behind"}}'] == 1
    assert 0 <= found[f'django_logic_oldest_open_row_seconds{{{base},queue="a"}}'] < 60
    assert found[f'django_logic_ended_rows{{{base},outcome="succeeded"}}'] == 1
    assert found[f'django_logic_ended_rows{{{base},outcome="failed"}}'] == 0
    assert found[f"django_logic_worker_up{worker}"] == 1
    assert found[f"django_logic_worker_listening{worker}"] == 0
    assert found[f"django_logic_worker_claim_seconds{worker}"] == 0.002
    assert 0 <= found[f"django_logic_worker_seen_seconds{worker}"] < 30
    assert found[f"django_logic_held_snapshot_seconds{{{base}}}"] == 0


def test_what_a_worker_does_not_know_has_no_series(registry: Any) -> None:
    """
    A worker without LISTEN and without a claim yet is no zero.
    """
    enter_worker("a", name="left")
    prometheus.register(registry=registry)

    found = scrape(registry)

    assert not [name for name in found if "listening" in name or "claim_seconds" in name]


def test_registering_asks_no_database(registry: Any) -> None:
    """
    A process may register before it has migrated anything.
    """
    with CaptureQueriesContext(connection) as queries:
        prometheus.register(registry=registry)

    assert len(queries) == 0


def test_second_collector_of_a_registry_is_refused(registry: Any) -> None:
    """
    The same series can't be exposed twice.
    """
    prometheus.register(registry=registry)

    with pytest.raises(ValueError, match="Duplicated timeseries"):
        prometheus.register(registry=registry)


def test_ended_rows_are_counted_once_in_a_while(flow: Flow, registry: Any) -> None:
    """
    What reads every row that is kept is looked up less often than Prometheus scrapes.
    """
    flow(work(queue="a"))
    registry.register(prometheus.BackgroundCollector())
    series = 'django_logic_ended_rows{database="default",outcome="succeeded"}'
    before = scrape(registry)[series]
    new_ticket().flow.go()
    run_available()
    fresh = prometheus_client.CollectorRegistry()
    fresh.register(prometheus.BackgroundCollector("default", ended_every=0))

    assert (before, scrape(registry)[series], scrape(fresh)[series]) == (0, 0, 1)


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
def test_several_databases_share_the_series(flow: Flow, registry: Any) -> None:
    """
    One collector tells of every database that has rows.
    """
    flow(work(queue="a"))
    Ticket.objects.using("other").create().flow.go()
    prometheus.register(["default", "other"], registry=registry)

    found = scrape(registry)

    assert found['django_logic_open_rows{database="other",queue="a",reason="no_worker_for_queue"}'] == 1
    assert not [name for name in found if "open_rows" in name and 'database="default"' in name]


@pytest.fixture
def without_table(only_postgres: None) -> Iterator[None]:
    """
    Take the table away.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {TABLE} RENAME TO elsewhere")
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE elsewhere RENAME TO {TABLE}")


def test_database_that_can_not_be_read_is_a_figure_and_no_failed_scrape(without_table: None, registry: Any) -> None:
    """
    A project's other metrics survive: the series says that the database is not readable.
    """
    prometheus.register(registry=registry)

    assert scrape(registry) == {'django_logic_readable{database="default"}': 0}
