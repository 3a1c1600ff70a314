"""
Django settings of every kit, taken from the environment the driver prepares.
"""

from __future__ import annotations

import os

SECRET_KEY = "benchmark only"  # noqa: S105 (guards nothing)
DEBUG = False
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    *filter(None, os.environ.get("BENCH_APPS", "").split(",")),
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["BENCH_DB_HOST"],
        "PORT": os.environ["BENCH_DB_PORT"],
        "USER": os.environ["BENCH_DB_USER"],
        "NAME": os.environ["BENCH_DB_NAME"],
        "CONN_MAX_AGE": None,
    }
}
if os.environ.get("BENCH_REDIS_URL"):
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": os.environ["BENCH_REDIS_URL"],
        }
    }
# Production keeps library chatter at WARNING; a debug line per move would be measured too.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}
