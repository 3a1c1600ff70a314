"""
Django settings of the background kits: those of the synchronous ones, and what a task queue asks for.
"""

from __future__ import annotations

import os

from harness.settings import *  # noqa: F403 (a settings module is a namespace)
from harness.settings import DATABASES

if os.environ.get("BENCH_PREPARED"):
    DATABASES["default"]["OPTIONS"] = {"server_side_binding": True, "prepare_threshold": 3}

# django-tasks-db is the only kit that reads it.
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": ["bench"]}}
