"""
pgbench in its prepared mode: what remains when nothing is parsed or planned twice.
"""

from __future__ import annotations

from typing import Any

from harness.contender import Contender
from kits.background_limit import contenders as plain


def describe() -> dict[str, Any]:
    """
    Name the contender.
    """
    return {"key": "limit_prepared", "label": "the same, prepared (not Django's default)"}


def drain(jobs: int, children: int, workload: str) -> dict[str, Any]:
    """
    Let that many clients of pgbench work off a backlog with prepared statements.

    Units: seconds.
    """
    return plain.drain(jobs, children, workload, is_prepared=True)


CONTENDERS: list[Contender] = []
EXTRAS = {"describe": describe, "drain": drain}
