"""
Configure Django for the tests, for mypy and for `makemigrations --check`.

The database comes from `DL_DATABASE_URL`, which `tests.servers` sets; without it, SQLite in memory is enough
to load the models.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from example.services import database_from_url

HERE = Path(__file__).parent
URL = os.environ.get("DL_DATABASE_URL", "sqlite://:memory:")
REDIS_URL = os.environ.get("DL_REDIS_URL")
# Threads of a race wait for each other's write lock; SQLite's own default of 5 seconds is short on a busy machine.
SQLITE_TIMEOUT = 30


def database(alias: str) -> dict[str, Any]:
    """
    Describe one alias: every alias is a database of its own on the same server.
    """
    facts = database_from_url(URL)
    facts["TEST"] = {"NAME": f"test_dl_{alias}"}
    if facts["ENGINE"].endswith("sqlite3"):
        facts["OPTIONS"] = {"timeout": SQLITE_TIMEOUT}
        in_memory = facts["NAME"] == ":memory:"
        facts["TEST"] = {} if in_memory else {"NAME": str(Path(facts["NAME"]).with_name(f"test_{alias}.sqlite3"))}
    if facts["ENGINE"].endswith("mysql"):
        facts["OPTIONS"] = {"charset": "utf8mb4"}
        facts["TEST"]["CHARSET"] = "utf8mb4"
    return facts


SECRET_KEY = "for tests only"
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
ROOT_URLCONF = "tests.urls"
ALLOWED_HOSTS = ["testserver"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

DATABASES = {"default": database("default"), "other": database("other")}

CACHES: dict[str, dict[str, Any]] = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
if REDIS_URL:
    CACHES["redis"] = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}

TEST_APPS = [
    name
    for name in ("app", "constraints_app", "scenarios/seed_app", "scenarios/docs_app", "worker_app")
    if (HERE / name).is_dir()
]
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    *(["django_logic", "django_logic.background", "django_logic.outbox"] if find_spec("django_logic") else []),
    *(f"tests.{name.replace('/', '.')}" for name in TEST_APPS),
]
# Test models leave TransitionConstraint to the tests that are about it.
# Background work runs inline here, or in one child, so a database without row locks will do.
SILENCED_SYSTEM_CHECKS = ["django_logic.W005", "django_logic.E009", "django_logic.W009"]
MIDDLEWARE: list[str] = []
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
