"""
Say on which machine the figures were taken.
"""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path


def machine() -> dict[str, object]:
    """
    Describe processor, memory, load and interpreter.
    """
    return {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _first_value("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory": _first_value("/proc/meminfo", "MemTotal"),
        "load_average": load(),
        "python": platform.python_version(),
    }


def load() -> list[float]:
    """
    Return the load averages, which tell a reader how quiet the machine was.
    """
    return [round(value, 2) for value in os.getloadavg()]


def _first_value(path: str, key: str) -> str | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None
