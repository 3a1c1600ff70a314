"""
Prove what one call leaves in the database and tells its caller.
"""

from __future__ import annotations
