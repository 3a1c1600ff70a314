"""
Run background work where another task queue's workers are: a `django.tasks` task and a Celery task.

Both only wake `run_available`: the claim stays in the database, so a task that is lost or runs twice costs time and
nothing else. ``run_background`` needs Django 6, ``run_background_in_celery`` needs Celery.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from django import VERSION, get_version
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

__all__ = ["run_background", "run_background_in_celery"]

#: What is missing for each task that can't be had here.
MISSING: dict[str, str] = {}

if VERSION >= (6, 0):
    run_background: Any = import_string("django_logic.contrib.tasks.django_task.run_background")
else:
    MISSING["run_background"] = f"Django 6.0 or newer; found {get_version()}"
if find_spec("celery") is not None:
    run_background_in_celery: Any = import_string("django_logic.contrib.tasks.celery_task.run_background_in_celery")
else:
    MISSING["run_background_in_celery"] = "Celery, which is not installed: pip install 'django-logic[celery]'"

if len(MISSING) == len(__all__):
    raise ImproperlyConfigured(
        f"django_logic.contrib.tasks needs {' or '.join(MISSING.values())}. Without either, call"
        " django_logic.background.run_available() from what you have, or run manage.py dl_worker."
    )


def __getattr__(name: str) -> Any:
    if name in MISSING:
        raise ImproperlyConfigured(f"django_logic.contrib.tasks.{name} needs {MISSING[name]}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
