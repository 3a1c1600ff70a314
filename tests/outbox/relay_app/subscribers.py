"""
Write down every event that arrives, then do what the reason of its move asks for.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from django_logic.background.testpoints import pause
from django_logic.outbox import Event, subscribe
from tests.outbox.seen import note


def fail(_argument: str) -> None:
    """
    Fail like any code.
    """
    raise RuntimeError("no paper")


#: What a reason asks for: a word and its argument, as in ``wait /tmp/gate``.
DEEDS: dict[str, Callable[[str], Any]] = {
    "exit": lambda status: os._exit(int(status)),
    "fail": fail,
    "hang": lambda _argument: threading.Event().wait(),
    "sleep": lambda seconds: time.sleep(float(seconds)),
    "wait": pause,
}


@subscribe("*")
def look(event: Event) -> None:
    """
    See an event.
    """
    note(event)
    deed, _, argument = str(event.payload.get("reason", "")).partition(" ")
    if deed in DEEDS:
        DEEDS[deed](argument)
