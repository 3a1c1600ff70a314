"""
Django settings of the background kits: those of the synchronous ones, and what a task queue asks for.
"""

from __future__ import annotations

from harness.settings import *  # noqa: F403 (a settings module is a namespace)

# django-tasks-db is the only kit that reads it.
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": ["bench"]}}
