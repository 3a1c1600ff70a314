"""
Hold the shop of the library's manual as a project would have it, under its own top-level name.
"""

from __future__ import annotations
