"""
Prove declarations, rules and values without a database.
"""

from __future__ import annotations
