"""
Settings of the example: as few as a project needs that uses the library.

`DATABASE_URL` names the database; without it a SQLite file beside this one is used.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from example.services import database_from_url

HERE = Path(__file__).parent

SECRET_KEY = "this example guards nothing"  # noqa: S105 - it serves no requests
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_logic",
    "django_logic.background",
    "django_logic.outbox",
    "example.shop",
    "example.story",
]

DATABASES: dict[str, dict[str, Any]] = {
    "default": database_from_url(os.environ.get("DATABASE_URL") or f"sqlite:///{HERE / 'shop.sqlite3'}")
}
# SQLite has one lock for all writers, so a worker runs on it for development only, which this says.
DEBUG = DATABASES["default"]["ENGINE"].endswith("sqlite3")
if DEBUG:
    SILENCED_SYSTEM_CHECKS = ["django_logic.W009"]
    # Who waits for another one's write gives up after this many seconds.
    DATABASES["default"]["OPTIONS"] = {"timeout": 30}

DJANGO_LOGIC = {
    # "all" also records duplicates and refusals, so that a timeline can show them.
    "AUDIT": "all",
    # Where events go, and which ones.
    "OUTBOX_PUBLISHERS": {
        "subscribers": {
            "BACKEND": "django_logic.outbox.publishers.local.Subscribers",
            "TOPICS": ["order.placed"],
        },
        "broker": {"BACKEND": "example.shop.broker.Broker", "TOPICS": ["order.*", "payment.received"]},
    },
    # The story is in a hurry; the default of 60 suits most projects.
    "OUTBOX_LEASE_SECONDS": 2,
}

# Where the courier and the label printer keep their own books, which no rollback of ours reaches.
OUTSIDE_WORLD = Path(os.environ.get("SHOP_OUTSIDE_WORLD") or Path(tempfile.gettempdir(), "outside-world"))

# Mails are kept in memory, where the story counts them.
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"django-logic": {"handlers": ["console"], "level": "INFO", "propagate": False}},
}
