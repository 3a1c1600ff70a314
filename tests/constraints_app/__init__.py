"""
An app whose tables the database itself guards.
"""

from __future__ import annotations
