"""
Hold usage that a type checker must accept; nothing here runs.
"""

from __future__ import annotations
