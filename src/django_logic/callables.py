"""
Telling functions that do their work from those that only return it unrun.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = ["never_runs"]


def never_runs(hook: Callable[..., Any]) -> bool:
    """
    Tell whether a call of this hook would return something unrun, which a guard's caller takes for a yes.
    """
    while isinstance(hook, partial):
        hook = hook.func
    bodies = (hook, getattr(type(hook), "__call__", None))  # noqa: B004 (the function behind it is wanted)
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(kind(body) for kind in kinds for body in bodies)
