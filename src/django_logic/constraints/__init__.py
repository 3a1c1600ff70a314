"""
What the database enforces: which states a column may hold, and which moves between them.

Declarations only, safe to import before ``django.setup()``; the SQL lives in one module per database vendor.
"""

from __future__ import annotations

from django_logic.constraints.state import StateConstraint
from django_logic.constraints.transition import TransitionConstraint
from django_logic.constraints.triggers import is_installed, suspended

__all__ = ["StateConstraint", "TransitionConstraint", "is_installed", "suspended"]
