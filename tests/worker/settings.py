"""
Configure a process that a test starts: the settings of the tests, with what the test puts over them.

`DL_WORKER_SETTINGS` holds a JSON object: `DATABASES` (the test databases of the running session) and whatever else.
"""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403 - this is a settings module

# What moves cost and when they commit is counted here, as in a project without events.
INSTALLED_APPS = [name for name in INSTALLED_APPS if name != "django_logic.outbox"]  # noqa: F405

globals().update(json.loads(os.environ.get("DL_WORKER_SETTINGS", "{}")))
