"""Placeholder until the real module lands (its owner overwrites this file)."""

from __future__ import annotations

from typing import Any

from django.db import models


class TransitionConstraint(models.CheckConstraint):
    field: str = ""
    edges: frozenset[Any] = frozenset()


def StateConstraint(**kw: Any) -> Any: ...
