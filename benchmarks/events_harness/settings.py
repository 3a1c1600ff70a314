"""
Django settings of the kits of events: those of the synchronous ones, and where events go.
"""

from __future__ import annotations

import os

from harness.settings import *  # noqa: F403 (a settings module is a namespace)
from harness.settings import DATABASES

PREPARED = {"server_side_binding": True, "prepare_threshold": 3}
if os.environ.get("BENCH_PREPARED"):
    DATABASES["default"]["OPTIONS"] = PREPARED

#: Holds a million delivered rows, so that a claim there and one in an empty table can take turns.
DATABASES["deep"] = {**DATABASES["default"], "NAME": os.environ["BENCH_DB_NAME"] + "_deep"}

STREAM = "events"
STREAM_URL = os.environ.get("BENCH_STREAM_URL", "")
STREAMS = {
    "BACKEND": "django_logic.outbox.publishers.redis_streams.RedisStreams",
    "OPTIONS": {"url": STREAM_URL, "stream": STREAM},
}
if STREAM_URL:
    DJANGO_LOGIC = {"OUTBOX_PUBLISHERS": {"redis": STREAMS}}

# Each peer reads its own.
DJANGO_OUTBOX_PATTERN = {
    "DEFAULT_STOMP_HOST_AND_PORTS": [("127.0.0.1", int(os.environ.get("BENCH_STOMP_PORT", "0")))],
}
RELIABLE_OUTBOX = {
    "DESTINATIONS": {
        "default": {
            "BACKEND": "reliable_outbox.destinations.redis.RedisStreamDestination",
            "OPTIONS": {"url": STREAM_URL, "stream": STREAM},
        }
        if STREAM_URL
        else {"BACKEND": "reliable_outbox.destinations.local.LocalHandlers"},
    },
}
