"""
Settings of the example: as few as a project needs that uses the library.

`DATABASE_URL` names the database; without it a SQLite file beside this one is used.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from example.services import database_from_url

HERE = Path(__file__).parent

SECRET_KEY = "this example guards nothing"  # noqa: S105 - it serves no requests
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_logic",
    "example.shop",
    "example.story",
]

DATABASES: dict[str, dict[str, Any]] = {
    "default": database_from_url(os.environ.get("DATABASE_URL") or f"sqlite:///{HERE / 'shop.sqlite3'}")
}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # Who waits for another one's write gives up after this many seconds.
    DATABASES["default"]["OPTIONS"] = {"timeout": 30}

# "all" also records duplicates and refusals, so that a timeline can show them.
DJANGO_LOGIC = {"AUDIT": "all"}

# Mails are kept in memory, where the story counts them.
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"django-logic": {"handlers": ["console"], "level": "INFO", "propagate": False}},
}
