"""
Prove what Prometheus gets of events when it scrapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_logic import Transition
from django_logic.outbox import Event, Undeliverable, relay, subscribe
from django_logic.outbox.models import OutboxDelivery, OutboxTally
from django_logic.outbox.subscribers import forget
from tests.app.models import Ticket
from tests.flows import Bind, declare

prometheus_client = pytest.importorskip("prometheus_client", reason="django-logic[prometheus] is not installed")
prometheus: Any = pytest.importorskip("django_logic.contrib.prometheus")

pytestmark = pytest.mark.django_db(transaction=True)

LOCAL = "django_logic.outbox.publishers.local.Subscribers"
TABLE = OutboxDelivery._meta.db_table


@pytest.fixture
def registry() -> Any:
    """
    Give a registry of our own.
    """
    return prometheus_client.CollectorRegistry()


@pytest.fixture
def refusing() -> Iterator[None]:
    """
    Let a subscriber refuse what is told of shut tickets.
    """

    @subscribe("ticket.shut")
    def refuse(event: Event) -> None:
        raise Undeliverable("no such route")

    yield
    forget(refuse)


def scrape(registry: Any) -> dict[str, float]:
    """
    Return the lines of an exposition without comments, by name and labels.
    """
    lines = prometheus_client.generate_latest(registry).decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def of_events(found: dict[str, float]) -> dict[str, float]:
    """
    Keep the series of events.
    """
    return {name: value for name, value in found.items() if name.startswith("django_logic_outbox")}


def test_scrape_tells_what_waits_what_is_dead_and_how_attempts_ended(
    bind: Bind, registry: Any, refusing: None, settings: Any
) -> None:
    """
    Every figure of a destination is a series of its database, and attempts are a counter by fate.
    """
    settings.DJANGO_LOGIC = {"OUTBOX_PUBLISHERS": {"shop": {"BACKEND": LOCAL}, "copy": {"BACKEND": LOCAL}}}
    bind(declare(Transition("open", ["new"], "opened"), Transition("shut", ["opened"], "shut")))
    ticket = Ticket.objects.create()
    ticket.flow.open()
    ticket.flow.shut()
    relay.drain("default", only=["shop"])
    OutboxTally.objects.create(destination="shop", fate="failed", count=7)
    prometheus.register(registry=registry)

    found = of_events(scrape(registry))

    base = 'database="default",destination'
    oldest = found.pop(f'django_logic_outbox_oldest_pending_seconds{{{base}="copy"}}')
    assert 0 <= oldest < 60
    assert found == {
        f'django_logic_outbox_pending{{{base}="shop"}}': 0,
        f'django_logic_outbox_pending{{{base}="copy"}}': 2,
        f'django_logic_outbox_oldest_pending_seconds{{{base}="shop"}}': 0,
        f'django_logic_outbox_dead{{{base}="shop"}}': 1,
        f'django_logic_outbox_dead{{{base}="copy"}}': 0,
        f'django_logic_outbox_attempts_total{{{base}="shop",fate="failed"}}': 7,
    }


def test_oldest_pending_event_grows_old_without_a_relay(bind: Bind, registry: Any) -> None:
    """
    Where no relay runs the age tells so: it is the age of the event, by the clock of the database.
    """
    bind(declare(Transition("open", ["new"], "opened")))
    Ticket.objects.create().flow.open()
    row = OutboxDelivery.objects.get()
    OutboxDelivery.objects.update(created=row.created.replace(year=row.created.year - 1))
    prometheus.register(registry=registry)

    found = scrape(registry)

    series = 'django_logic_outbox_oldest_pending_seconds{database="default",destination="subscribers"}'
    assert 364 * 86_400 < found[series] < 367 * 86_400


def test_attempts_are_typed_as_a_counter(registry: Any) -> None:
    """
    What only grows says so, and the rest are gauges.
    """
    prometheus.register(registry=registry)

    lines = prometheus_client.generate_latest(registry).decode().splitlines()

    types = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE django_logic_outbox")}
    assert types == {
        "django_logic_outbox_pending": "gauge",
        "django_logic_outbox_oldest_pending_seconds": "gauge",
        "django_logic_outbox_dead": "gauge",
        "django_logic_outbox_attempts_total": "counter",
    }


def test_scrape_costs_the_same_queries_however_much_waits(bind: Bind, registry: Any) -> None:
    """
    Figures are counted by the database.
    """
    bind(declare(Transition("open", ["new"], "opened")))
    prometheus.register(registry=registry)
    scrape(registry)
    costs = []
    for count in (5, 45):
        for ticket in [Ticket.objects.create() for _number in range(count)]:
            ticket.flow.open()
        with CaptureQueriesContext(connection) as queries:
            found = scrape(registry)
        costs.append(len(queries))

    assert found['django_logic_outbox_pending{database="default",destination="subscribers"}'] == 50
    assert costs[0] == costs[1]


class Apart:
    """
    Keep events out of a database.
    """

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        """
        Let events into ``default`` only.
        """
        return db == "default" if app_label == "django_logic_outbox" else None


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
def test_database_that_keeps_no_events_is_not_asked_for_them(registry: Any, settings: Any) -> None:
    """
    A router says where events are; another database still tells of its background work.
    """
    settings.DATABASE_ROUTERS = [Apart()]
    prometheus.register(["default", "other"], registry=registry)

    found = scrape(registry)

    assert 'django_logic_outbox_pending{database="default",destination="subscribers"}' in found
    assert not [name for name in of_events(found) if 'database="other"' in name]
    assert found['django_logic_readable{database="other"}'] == 1


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


def test_events_that_can_not_be_read_are_a_figure_and_no_failed_scrape(without_table: None, registry: Any) -> None:
    """
    A project's other metrics survive: the series says that the database is not readable.
    """
    prometheus.register(registry=registry)

    assert scrape(registry) == {'django_logic_readable{database="default"}': 0}
