"""
Give a process a wrong clock.
"""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

from example.services import ServiceMissing

#: Debian keeps it under the machine's own folder; a build from source goes to /usr/local.
PLACES = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime")
LIBRARY = "libfaketimeMT.so.1"


def wrong_clock(offset: str) -> dict[str, str]:
    """
    Return the environment that moves the wall clock of a process and its children: ``+10m``, ``-1d``.

    The monotonic clock stays as it is: a machine whose date is wrong still measures time.
    Raises: ServiceMissing without libfaketime.
    """
    found = [path for place in PLACES for path in sorted(Path("/").glob(f"{place[1:]}/{LIBRARY}"))]
    if not found:
        raise ServiceMissing("libfaketime", "the Debian package faketime")
    return {"LD_PRELOAD": str(found[0]), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def mend_sleep() -> None:
    """
    Let this process sleep under a wrong clock: libfaketime 0.9.10 refuses the call that `time.sleep` makes.
    """
    if "FAKETIME" in os.environ:
        time.sleep = _wait_by_select  # type: ignore[assignment]


def _wait_by_select(seconds: float, /) -> None:
    select.select([], [], [], seconds)
