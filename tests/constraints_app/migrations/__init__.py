"""
The migrations of the guarded tables, as makemigrations wrote them.
"""

from __future__ import annotations
