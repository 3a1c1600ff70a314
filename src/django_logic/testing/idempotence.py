"""
Doing something twice and finding no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

from django.db import models

from django_logic.subject import alias_of
from django_logic.testing.journey import as_list

__all__ = ["assert_idempotent"]


def assert_idempotent(
    work: Callable[..., Any],
    instance: models.Model,
    *,
    fields: Iterable[str] | None = None,
    capture: Callable[[], Any] | None = None,
    refresh_from_db: bool = True,
    **keywords: Any,
) -> None:
    """
    Run ``work(instance, **keywords)`` twice, and check that the second time changes nothing that is observed.

    Observed are ``fields`` of the object, as the database has them (as the instance has them with
    ``refresh_from_db=False``), and what ``capture()`` returns.
    Raises: TypeError when nothing is observed, AssertionError with both observations.
    """
    if fields is None and capture is None:
        raise TypeError("assert_idempotent observes nothing. Pass fields=[…], capture=…, or both.")
    names = as_list(fields, "fields") if fields is not None else []

    def observe() -> dict[str, Any]:
        seen: dict[str, Any] = {}
        if names and refresh_from_db:
            rows = type(instance)._base_manager.using(alias_of(instance)).filter(pk=instance.pk)
            seen |= rows.values(*names).first() or {}
        else:
            seen |= {name: getattr(instance, name) for name in names}
        if capture is not None:
            seen["capture()"] = capture()
        return deepcopy(seen)

    observed = []
    for _ in range(2):
        work(instance, **keywords)
        if refresh_from_db:
            instance.refresh_from_db()
        observed.append(observe())
    first, second = observed
    if changed := {name: (first[name], second[name]) for name in first if first[name] != second.get(name)}:
        raise AssertionError(f"The second run changed something (after the first, after the second): {changed}")
