"""
Show the library at work: a small shop and the throw-away servers it runs on.
"""

from __future__ import annotations
