"""
Offer the fixtures that tests of every folder share.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from django.apps import apps
from django.contrib.contenttypes.management import create_contenttypes
from django.core.cache import caches
from django.db import connection
from django.db.models.signals import post_migrate

from django_logic import extension
from django_logic.outbox.events import rows_of
from django_logic.outbox.relay.wake import wake
from tests import servers
from tests.app.models import Ticket
from tests.flows import Bind, bindings

if TYPE_CHECKING:
    from pytest_django import Settings


@pytest.fixture(autouse=True)
def no_model_is_left() -> Iterator[None]:
    """
    Fail a test that leaves a model of its own registered, which migrations and checks of later tests would meet.
    """
    yield
    registered = [model for models in apps.all_models.values() for model in models.values()]
    left = [model.__qualname__ for model in registered if "<locals>" in model.__qualname__]
    assert not left, f"models were left registered: {left}; declare them within isolate_apps()"


@pytest.fixture(scope="session", autouse=True)
def flush_is_quick() -> None:
    """
    Spare the flush after each committing test two thirds of its time: nobody asks for all permissions again.
    """
    post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
    post_migrate.disconnect(create_contenttypes)


@pytest.fixture(scope="session", autouse=True)
def no_events() -> None:
    """
    Let moves write no events, as in a project without the app, but in tests that ask for them.
    """
    extension.unregister(rows_of)


@pytest.fixture
def events() -> Iterator[None]:
    """
    Let moves write events.
    """
    extension.register_contributor(rows_of, after_write=wake)
    yield
    extension.unregister(rows_of)


@pytest.fixture
def redis_url() -> str:
    """
    Give the address of a real Redis, or skip (fail, when services are required).
    """
    url = os.environ.get("DL_REDIS_URL")
    if url is None:
        missing = os.environ.get("DL_REDIS_MISSING", "Redis: the Python package redis is not installed.")
        (pytest.fail if servers.are_required() else pytest.skip)(missing)
    return url


@pytest.fixture
def redis_cache(redis_url: str, settings: Settings) -> Iterator[None]:
    """
    Make the real Redis the `default` cache, empty before and after.
    """
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_url},
    }
    caches["default"].clear()
    yield
    caches["default"].clear()


@pytest.fixture
def only_postgres() -> None:
    """
    Skip a test whose promise is made for PostgreSQL only.
    """
    if connection.vendor != "postgresql":
        pytest.skip("the promise is made for PostgreSQL")


@pytest.fixture
def bound_on_the_server(only_postgres: None, transactional_db: None) -> Iterator[None]:
    """
    Reconnect with server-side binding, and prepare every statement at its first use.
    """
    options = connection.settings_dict["OPTIONS"]
    connection.close()
    connection.settings_dict["OPTIONS"] = {**options, "server_side_binding": True, "prepare_threshold": 0}
    yield
    connection.close()
    connection.settings_dict["OPTIONS"] = options


@pytest.fixture
def bind() -> Iterator[Bind]:
    """
    Bind processes for the length of one test.
    """
    with bindings() as bind:
        yield bind


@pytest.fixture
def ticket(db: None) -> Ticket:
    """
    Give a saved object in its first state, ``new``.
    """
    return Ticket.objects.create()


@pytest.fixture
def clerk(db: None, django_user_model: Any) -> Any:
    """
    Give a saved user without any right.
    """
    return django_user_model.objects.create_user("clerk")
