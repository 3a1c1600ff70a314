"""
Why is it not moving? The reason of every open row, as `dl_transitions`, the admin and the metrics tell it.
"""

from __future__ import annotations

from django_logic.background.explain.answers import explain, rows_with, tally
from django_logic.background.explain.codes import Code, Explanation, Tally

__all__ = ["Code", "Explanation", "Tally", "explain", "rows_with", "tally"]
