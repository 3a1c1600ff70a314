"""
Points in time, in both directions: a zone keeps its name, and an hour that comes twice keeps which one it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from django_logic.background.codec.kinds import TAG

__all__ = ["Moment", "is_kept", "read_moment", "write_moment"]

Moment = datetime | time


def is_kept(zone: tzinfo | None) -> bool:
    """
    Tell whether a zone comes back as it is: none, a named ZoneInfo or a fixed offset of Python's own.
    """
    return zone is None or type(zone) is timezone or (type(zone) is ZoneInfo and bool(zone.key))


def write_moment(value: Moment) -> dict[str, Any]:
    """
    Write a datetime or a time; a zone that is not kept as its offset.
    """
    zone = value.tzinfo
    if not is_kept(zone):
        zone = timezone(value.utcoffset() or timedelta())
    stored: dict[str, Any] = {TAG: "datetime" if isinstance(value, datetime) else "time"}
    if value.fold:
        stored["fold"] = 1
    if type(zone) is ZoneInfo:
        stored["zone"] = zone.key
    elif type(zone) is timezone and zone is not UTC:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        stored["offset"] = offset.total_seconds()
        if name != timezone(offset).tzname(None):
            stored["name"] = name
    if zone is not UTC:
        value = value.replace(tzinfo=None)
    stored["value"] = value.isoformat()
    return stored


def read_moment(stored: Mapping[str, Any]) -> Moment:
    """
    Read a datetime or a time.
    """
    kind = datetime if stored[TAG] == "datetime" else time
    value: Moment = kind.fromisoformat(stored["value"])
    if "zone" in stored:
        value = value.replace(tzinfo=ZoneInfo(stored["zone"]))
    if "offset" in stored:
        name = [stored["name"]] if "name" in stored else []
        value = value.replace(tzinfo=timezone(timedelta(seconds=stored["offset"]), *name))
    return value.replace(fold=stored.get("fold", 0))
