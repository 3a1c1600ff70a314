"""
Prove what ``manage.py check`` finds between background declarations, databases and queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.core import checks as django_checks
from django.core import mail
from django.db import connection

from django_logic import ProcessManager, Transition
from django_logic.background import checks
from django_logic.background.models import TransitionMessage
from tests.app.models import Ticket
from tests.background.flows import Flow, act, work
from tests.flows import declare


class Away:
    """
    Keep the table of background rows from the database where the models are.
    """

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        """
        Let the table into ``other`` only.
        """
        return db == "other" if app_label == "django_logic_background" else None


class Aside:
    """
    Send who looks for background rows to another database than the models.
    """

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        """
        Choose ``other`` for rows.
        """
        return "other" if model is TransitionMessage else None


@pytest.fixture(autouse=True)
def sandbox() -> Iterator[None]:
    """
    Forget what other apps have bound.
    """
    before = list(ProcessManager.bindings)
    ProcessManager.bindings[:] = []
    yield
    ProcessManager.bindings[:] = before


def ids(messages: list[django_checks.CheckMessage]) -> list[str | None]:
    """
    Return the ids of messages.
    """
    return [message.id for message in messages]


def test_model_whose_database_has_no_table_for_its_rows_is_an_error(flow: Flow, settings: Any) -> None:
    """
    A router that keeps the table away from where the model is would fail every call, so it is an error.
    """
    settings.DATABASE_ROUTERS = [Away()]
    flow(work())

    (found,) = checks.check_tables()

    assert (found.id, found.obj, found.level) == ("django_logic.E008", Ticket, django_checks.ERROR)
    assert "background rows of app.Ticket are written to 'default'" in found.msg
    assert "migrate it" in (found.hint or "")


def test_rows_that_a_router_looks_for_elsewhere_are_a_warning(flow: Flow, settings: Any) -> None:
    """
    Rows are written beside their object, so a router that sends readers elsewhere hides them.
    """
    settings.DATABASE_ROUTERS = [Aside()]
    flow(work())

    (found,) = checks.check_tables()

    assert (found.id, found.level) == ("django_logic.W008", django_checks.WARNING)
    assert "--database default" in (found.hint or "")


@pytest.mark.parametrize("router", [Away, Aside])
def test_routers_matter_to_background_declarations_only(bind: Any, settings: Any, router: Any) -> None:
    """
    A process without background work needs no row and no table.
    """
    settings.DATABASE_ROUTERS = [router()]
    bind(declare(Transition("go", ["new"], "done")))

    assert checks.check_tables() == []


def test_plain_project_has_nothing_to_hear(flow: Flow) -> None:
    """
    Without routers every table is where it should be.
    """
    flow(work())

    assert checks.check_tables() == []


@pytest.mark.parametrize(
    ("is_debug", "is_test", "id_", "level"),
    [
        (False, False, "django_logic.E009", django_checks.ERROR),
        (True, False, "django_logic.W009", django_checks.WARNING),
        (False, True, "django_logic.W009", django_checks.WARNING),
    ],
)
def test_database_without_row_locks_is_for_development(
    flow: Flow, settings: Any, monkeypatch: pytest.MonkeyPatch, is_debug: bool, is_test: bool, id_: str, level: int
) -> None:
    """
    Pull mode on SQLite is an error in production, and a warning on a developer's machine and in tests, where DEBUG is
    off.
    """
    if connection.vendor != "sqlite":
        pytest.skip("the promise is about SQLite")
    settings.DEBUG = is_debug
    if not is_test:
        monkeypatch.delattr(mail, "outbox")
    flow(work())

    (found,) = checks.check_databases()

    assert (found.id, found.level) == (id_, level)
    assert "sqlite has no row locks" in found.msg


def test_databases_with_row_locks_are_fine(flow: Flow, settings: Any) -> None:
    """
    PostgreSQL and MariaDB are for production.
    """
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no row locks")
    settings.DEBUG = False
    flow(work())

    assert checks.check_databases() == []


def test_database_does_not_matter_without_background_work_or_in_sync_mode(bind: Any, flow: Flow, settings: Any) -> None:
    """
    Nobody pulls where nothing is declared, or where calls run their work themselves.
    """
    bind(declare(Transition("go", ["new"], "done"), name="plain"))
    without = checks.check_databases()
    flow(work())
    settings.DJANGO_LOGIC = {"BACKGROUND_EXECUTION": "sync"}

    assert (without, checks.check_databases()) == ([], [])


def test_queues_in_use_are_listed_with_the_declarations_that_use_them(flow: Flow) -> None:
    """
    Whoever starts workers learns which queues they have to serve between them.
    """
    process = flow(work(queue="slow"), act(queue="fast"), act(action="again", queue="fast"), work(action="plain"))
    name = f"{process.__module__}.{process.__name__}"

    (found,) = checks.list_queues()

    assert checks.queues_in_use() == {
        "django_logic": [f"{name}.plain"],
        "fast": [f"{name}.act", f"{name}.again"],
        "slow": [f"{name}.go"],
    }
    assert (found.id, found.level) == ("django_logic.I001", django_checks.INFO)
    assert f"\n    fast: {name}.act, {name}.again" in found.msg
    assert "manage.py dl_worker --queues 'django_logic,fast,slow'" in (found.hint or "")


def test_no_queue_is_listed_where_none_is_used() -> None:
    """
    A project without background work has no queue.
    """
    assert (checks.list_queues(), checks.queues_in_use()) == ([], {})


def test_list_of_queues_is_part_of_the_deployment_checks_alone(flow: Flow) -> None:
    """
    The list does not clutter every command: ``check --deploy`` shows it, ``check`` does not.
    """
    flow(work())

    registered = {check.__name__ for check in django_checks.registry.registry.registered_checks}
    deployed = django_checks.run_checks(tags=["django_logic"], include_deployment_checks=True)
    plain = django_checks.run_checks(tags=["django_logic"])

    assert {"check_tables", "check_databases"} <= registered
    assert ("django_logic.I001" in ids(deployed), "django_logic.I001" in ids(plain)) == (True, False)


def test_declared_work_without_its_app_is_reported(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A process with background declarations in a project that did not install the app is an error with the mend.
    """
    flow(work())
    installed = apps.is_installed
    monkeypatch.setattr(apps, "is_installed", lambda name: name != "django_logic.background" and installed(name))

    found = [entry for entry in django_checks.run_checks(tags=["django_logic"]) if entry.id == "django_logic.E010"]

    assert Ticket in [entry.obj for entry in found]
    assert 'Add "django_logic.background"' in str(found[0].hint)
