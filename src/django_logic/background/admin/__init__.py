"""
The admin of background work: rows and workers to look at, and two things to do to a row.

Nothing is edited here: what a row says is the engine's to write.
"""

from __future__ import annotations

from django_logic.background.admin.masking import masked
from django_logic.background.admin.rows import MessageAdmin
from django_logic.background.admin.workers import WorkerAdmin

__all__ = ["MessageAdmin", "WorkerAdmin", "masked"]
